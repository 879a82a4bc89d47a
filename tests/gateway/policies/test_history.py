"""Revisions that are kept: the newest, and no more than the bound."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.handlers.test_policy import POLICY, apply, in_force, stored


async def test_of_more_revisions_than_are_stored_the_oldest_go(tmp_path: Path) -> None:
    async with stored(tmp_path, settings={"policy.max_revisions": 10}) as stack:
        seed = await in_force(stack)
        for number in range(12):
            now = await in_force(stack)
            assert (await apply(stack, f"{seed['document']}# {number}\n", etag=now["etag"])).status == 200
        listed = (await stack.get(f"{POLICY}/revisions?limit=50", admin=True)).json["revisions"]
        assert [line["number"] for line in listed] == list(range(13, 3, -1))
        assert (await stack.get(f"{POLICY}/revisions/3", admin=True)).status == 404
        assert (await stack.get(f"{POLICY}/revisions/4", admin=True)).status == 200
    async with stored(tmp_path, settings={"policy.max_revisions": 10}) as stack:
        assert (await in_force(stack))["revision"]["number"] == 13
