"""Commands: what each takes from settings and flags, and what it says when it cannot do its work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.cli import commands
from gateway.cli import main as cli
from gateway.config.settings import GatewayConfig
from tests.gateway.cli.conftest import Exec

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize(
    ("flags", "public", "admin"),
    [
        (["--port", "9000"], "127.0.0.1:9000", "127.0.0.1:8081"),
        (["--port", "9000", "--admin-port", "9001"], "127.0.0.1:9000", "127.0.0.1:9001"),
        (["--public-listen", "[::1]:1", "--port", "2"], "[::1]:2", "127.0.0.1:8081"),
        (["--public-listen", "unix:/p.sock"], "unix:/p.sock", "127.0.0.1:8081"),
    ],
)
def test_flags_change_where_the_gateway_listens(flags: list[str], public: str, admin: str) -> None:
    found = commands.settings(cli.build_parser().parse_args(["gateway", *flags]))
    assert (found.public.listen, found.admin.listen) == (public, admin)


def test_the_gateway_gets_its_settings_and_its_code_is_returned() -> None:
    seen: list[GatewayConfig] = []

    async def serve(config: GatewayConfig) -> int:
        seen.append(config)
        await asyncio.sleep(0)
        return 7

    options = cli.build_parser().parse_args(["gateway", "--port", "0", "--policy", "p.yaml"])
    assert commands.gateway(options, serve) == 7
    assert (seen[0].public.listen, seen[0].policy.document) == ("127.0.0.1:0", Path("p.yaml").resolve())


def test_a_port_in_use_is_one_line_with_the_flag() -> None:
    async def serve(config: GatewayConfig) -> int:
        raise OSError(98, "Address already in use")

    with pytest.raises(commands.CommandError, match="is already in use; choose others with --port and --admin-port"):
        commands.gateway(cli.build_parser().parse_args(["gateway"]), serve)


def test_bench_needs_a_checkout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exec_calls: Exec, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "_root", lambda: tmp_path)
    assert cli.main(["bench", "overhead"]) == 1
    assert "benchmarks come with the source" in capsys.readouterr().err
    (tmp_path / "loadtests").mkdir()
    (tmp_path / "loadtests" / "__main__.py").touch()
    with pytest.raises(SystemExit):
        cli.main(["bench", "overhead", "--seconds", "1"])
    assert exec_calls.argv[-5:] == ["-m", "loadtests", "overhead", "--seconds", "1"]
