"""The token of this machine: made once, read by its owner only."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.test_access import NOBODY, gateway, get, post
from tests.gateway.stack import chat


async def test_a_runtime_directory_without_room_for_a_token_costs_the_token_only(tmp_path: Path) -> None:
    (tmp_path / "admin.token").mkdir()
    async with gateway(tmp_path) as stack:
        assert (await stack.call(chat("solo"), headers={"authorization": "Bearer sk-in-the-document"})).status == 200
        assert (await get(stack, "policy")).status == 200
        assert (await post(stack, "keys", {"tenant": "shop"}, NOBODY)).status == 401
        assert stack.lines("admin_token_missing")
