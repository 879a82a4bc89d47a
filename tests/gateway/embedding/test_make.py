"""The command that makes the encoder's graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedding.make import main


def test_making_gives_the_reason_it_could_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert main([str(tmp_path / "file"), "int8"]) == 1
    assert "file" in capsys.readouterr().err
