"""A place to run commands in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


class Exec:
    """Stands in for `os.execv`."""

    def __init__(self) -> None:
        self.argv: list[str] = []

    def __call__(self, path: str, argv: Sequence[str]) -> NoReturn:
        self.argv = list(argv)
        raise SystemExit(0)


@pytest.fixture
def exec_calls(monkeypatch: pytest.MonkeyPatch) -> Exec:
    calls = Exec()
    monkeypatch.setattr(os, "execv", calls)
    monkeypatch.setenv("PYTHONPATH", "")  # `_become` changes it; this restores it
    return calls
