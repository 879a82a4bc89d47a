"""`penstock explain` and `penstock top` against a running gateway, and the preview behind `explain --request`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pytest

from gateway.cli import observe
from gateway.cli.commands import CommandError, UsageError
from gateway.cli.main import build_parser
from tests.gateway.stack import Stack, chat, running


def options(stack: Stack, *arguments: str) -> argparse.Namespace:
    """A command line of a gateway that listens on a socket."""
    config = stack.gateway.config
    file = config.process.runtime_dir / "penstock.toml"
    file.write_text(f'admin.listen = "{config.admin.listen}"\nprocess.runtime_dir = "{config.process.runtime_dir}"\n')
    return build_parser().parse_args([*arguments, "--config", str(file)])


async def test_a_finished_request_is_explained_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(stream=True))
        requested = options(stack, "explain", reply.headers["x-request-id"])
        assert await asyncio.to_thread(observe.show_request, requested) == 0
        out = capsys.readouterr().out
        assert f"{reply.headers['x-request-id']}  completed, status 200" in out
        assert "upstream_first_byte" in out
        assert "attempt 1: small by first_available" in out


async def test_an_unknown_request_is_an_error_that_names_the_place_else_to_look(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        with pytest.raises(CommandError, match="The log has it"):
            await asyncio.to_thread(observe.show_request, options(stack, "explain", "req_no/../such"))


async def test_the_admin_api_on_the_public_listener_is_reported_to_be_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        assert "admin.listen" in (await stack.get("/admin/api/overview")).error["message"]
        assert "/v1/" in (await stack.get("/nothing")).error["message"]


@pytest.mark.parametrize("interval", ["0", "nan", "inf"])
def test_an_interval_that_nobody_can_wait_for_is_a_usage_error(interval: str) -> None:
    with pytest.raises(UsageError, match="--interval-s"):
        observe.top(build_parser().parse_args(["top", "--interval-s", interval]))


async def test_top_prints_one_screen_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(stream=True))
        assert await asyncio.to_thread(observe.top, options(stack, "top")) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        for expected in ("LANE", "interactive", "DEPLOYMENT", "small", "REQUEST", "completed"):
            assert expected in out
