"""Engines of others behind the gateway, where they are installed; and the matrix's own parts."""

from __future__ import annotations

import asyncio

import pytest

from routing_policies.loading import load_policy
from tests.upstream_engines.__main__ import run_checks, table
from tests.upstream_engines.checks import CHECKS
from tests.upstream_engines.engines import ENGINES, ROOT


@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_check_holds_behind_the_gateway(name: str) -> None:
    engine = ENGINES[name]
    if not engine.is_installed():
        pytest.skip(f"{name} is not installed: `make test-engines` installs it and runs these checks")
    found = asyncio.run(run_checks(engine))
    assert found.keys() == CHECKS.keys() - engine.lacks
    assert {check: problem for check, problem in found.items() if problem is not None} == {}


def test_every_engine_has_a_policy_that_ships() -> None:
    for engine in ENGINES.values():
        path = ROOT / "routing_policies" / "presets" / f"{engine.policy}.yaml"
        assert len(load_policy(path.read_text(), source=path.name).deployments) == 2


def test_the_table_reports_what_failed_and_what_an_engine_lacks() -> None:
    outcome: dict[str, str | None] = dict.fromkeys(CHECKS)
    outcome["cancel"] = "AssertionError"
    del outcome["tools"]
    row = table({"an engine": ("1.2", outcome)}).splitlines()[2]
    cells = dict(zip(CHECKS, row.split(" | ")[2:], strict=True))
    assert (cells["plain"], cells["cancel"], cells["tools"]) == ("yes", "no", "–")


def test_what_an_engine_lacks_is_a_check() -> None:
    for engine in ENGINES.values():
        assert engine.lacks <= CHECKS.keys()
