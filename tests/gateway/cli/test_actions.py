"""Output of commands: for people without control characters, for programs as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.cli.test_policy_commands import shell


async def test_what_others_wrote_is_shown_and_not_obeyed_by_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        file = sh.file((tmp_path / "policy.yaml").read_text() + "# one\n")
        code, _, shown = await sh.run("policy", "apply", file, "--reason", "gone \x1b[2J", "--yes")
        assert (code, "reason" in shown, "\x1b" in shown) == (1, True, False)
        assert (await sh.run("policy", "apply", file, "--reason", "gone \u202e", "--yes"))[0] == 0
        for command in (("policy", "history"), ("audit", "list")):
            code, out, _ = await sh.run(*command)
            assert (code, "gone \\u202e" in out, "\u202e" in out) == (0, True, False)
