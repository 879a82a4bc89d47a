"""The admin API as commands use it: every refusal in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.cli.test_policy_commands import shell


async def test_a_wrong_token_and_no_gateway_are_reported_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        token = tmp_path / "other.token"
        token.write_text("t" * 40)
        code, _, err = await sh.run("policy", "history", "--token-file", str(token))
        assert (code, "token is not one of this gateway" in err) == (1, True)
        code, _, err = await sh.run("policy", "history", "--url", "http://127.0.0.1:1")
        assert (code, "no gateway answers" in err) == (1, True)
        assert (await sh.run("policy", "history", "--token-file", "/nonexistent"))[0] == 2
