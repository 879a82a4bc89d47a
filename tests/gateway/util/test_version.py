"""The version that the package says of itself."""

from __future__ import annotations

import pytest

from gateway.cli import main as cli
from gateway.util.version import version


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"penstock {version()}\n"
