"""Arguments that argparse has no types for."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.main import main


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon", "1e400"])
async def test_a_time_that_is_none_is_an_argument_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    for command in (
        ["keys", "new", "--store", "--tenant", "shop", "--expires-in-s", seconds],
        ["keys", "rotate", "shop", "web", "--overlap-s", seconds],
        ["policy", "canary", "start", "p.yaml", "--percent", "5", "--reason", "x", "--promote-after-s", seconds],
    ):
        with pytest.raises(SystemExit) as caught:
            main(command)
        assert caught.value.code == 2
        assert "expected a number of seconds" in capsys.readouterr().err or seconds == "-1"
