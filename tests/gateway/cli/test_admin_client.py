"""The admin API as commands use it: every refusal in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.config.running import RunningFile
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
        assert "check --url" in err
        assert (await sh.run("policy", "history", "--token-file", "/nonexistent"))[0] == 2
        code, _, err = await sh.run("policy", "history", "--url", "localhost:8081")
        assert (code, "--url: " in err) == (2, True)


async def test_a_gateway_on_an_address_of_its_own_is_found_in_its_runtime_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys):
        elsewhere = ["--config", "/dev/null", "--runtime-dir", str(tmp_path)]
        with RunningFile(tmp_path, public="127.0.0.1:1", admin=f"unix:{tmp_path}/admin.sock"):
            assert await asyncio.to_thread(main, ["policy", "history", *elsewhere]) == 0


def test_where_nothing_runs_the_next_command_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--runtime-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"penstock: no penstock runs in {tmp_path}; start one with penstock up, "
        "or name the folder of one that runs with --runtime-dir\n"
    )
