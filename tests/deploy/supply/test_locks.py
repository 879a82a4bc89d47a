"""Locks: one for each extra, hashed, without hosts, and within what pyproject.toml admits."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.supply import locks
from deploy.supply.locks import FOLDER, locked, names, newer, path_of, stated

EVERY = pytest.mark.parametrize("name", names())


def test_every_extra_has_a_lock_and_no_other_file_is_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.lock" for name in names()}, "run `make locks`"


@EVERY
def test_pyproject_admits_every_locked_version(name: str) -> None:
    versions = locked(name)
    for requirement in stated(name):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked; run `make locks`"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version} is locked"


@EVERY
def test_every_locked_file_has_a_hash_and_nothing_states_where_it_was_fetched(name: str) -> None:
    text = path_of(name).read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(name))
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.partition("\n")[0]
    assert re.findall(r"https?:|file:|--(?:extra-)?index-url|--find-links|--trusted-host|@ ", text) == []


def test_locks_agree_on_what_they_share() -> None:
    versions: dict[str, set[str]] = {}
    for name in names():
        for package, version in locked(name).items():
            versions.setdefault(package, set()).add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


def test_torch_is_the_newest_that_the_engine_is_tested_with() -> None:
    assert locked("engine")["torch"] == "2.13.0"
    assert "torch" not in locked("learning"), "the gateway's image has no torch"


def test_an_upper_bound_that_leaves_out_a_newer_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def resolved(requirements: Iterable[str]) -> str:
        requested.extend(requirements)
        return "bounded==3.0 \\\n    --hash=sha256:00\nopen-ended==9.1 \\\n    --hash=sha256:00\n"

    stated = ("bounded[more]>=1,<2", "open_ended>=1")
    monkeypatch.setattr(locks, "resolve", resolved)
    monkeypatch.setattr(locks, "stated", lambda name: map(Requirement, stated))
    assert newer() == ["bounded 3.0 is out; pyproject.toml admits <2,>=1"]
    assert requested == ["bounded[more]>=1", "open_ended>=1"]
