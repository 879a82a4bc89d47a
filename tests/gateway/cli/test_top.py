"""The live table of a gateway in a terminal."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.top import render_top
from tests.gateway.stack import chat, running


async def test_tops_numbers_fit_a_small_terminal_and_colour_is_a_choice(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(stream=True))
        overview = (await stack.get("/admin/api/overview", admin=True)).json
        requests = (await stack.get("/admin/api/requests", admin=True)).json["requests"]
        plain = render_top(overview, requests, width=60, height=12, is_colored=False).splitlines()
        assert len(plain) == 12
        assert max(map(len, plain)) <= 60
        assert "\x1b[1mpenstock" in render_top(overview, requests, width=60, height=12, is_colored=True)
