"""The policies that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

import routing_policies
from gateway.routing.quality_files import load_predictors
from routing_policies.check import run_tests
from routing_policies.loading import load_document

PRESETS = sorted((Path(routing_policies.__file__).parent / "presets").glob("*.yaml"))


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_loads_and_its_own_tests_hold(path: Path) -> None:
    loaded, document = load_document(path.read_text(), source=path.name, variables={"runtime_dir": "/run/penstock"})
    result = run_tests(loaded, document, load_predictors())
    assert result.failures == ()
    assert result.num_tests > 0


def test_the_bundled_preset_ships() -> None:
    assert "bundled" in {path.stem for path in PRESETS}
