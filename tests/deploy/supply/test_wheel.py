"""The wheel: the same bytes from trees that differ in place, date and rights, and nothing that is not shipped."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from deploy.supply import wheel
from deploy.supply.wheel import build_wheel


def test_two_builds_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1760000000")
    first = build_wheel(tmp_path / "first")
    changed = tmp_path / "another place"
    wheel._copy(changed)
    for path in changed.rglob("*.py"):  # as another checkout leaves them
        path.chmod(0o600)
        path.touch()
    (changed / "engine" / "__pycache__").mkdir()
    (changed / "engine" / "__pycache__" / "left.pyc").write_bytes(b"over")
    monkeypatch.setattr(wheel, "ROOT", changed)
    second = build_wheel(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert {entry.date_time[:3] for entry in archive.infolist()} == {(2025, 10, 9)}
        top = {name.partition("/")[0] for name in archive.namelist()}
    assert top == {"engine", "gateway", "routing_policies", f"{first.name.split('-py3')[0]}.dist-info"}


def test_dates_are_those_of_the_last_commit_and_of_none_before_1980(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert wheel.source_date() == 315532800
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert wheel.source_date() > 1_700_000_000
