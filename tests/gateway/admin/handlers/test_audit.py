"""The audit log at the admin API: pages of it, the newest first on request, and its chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.admin.test_access import gateway, get, post
from tests.gateway.stack import Stack


async def made(stack: Stack, num: int) -> None:
    """So many keys, each a line of the log."""
    for number in range(num):
        assert (await post(stack, "keys", {"tenant": "shop", "id": f"k{number}"})).status == 201


async def test_pages_follow_each_other_and_the_newest_come_first_on_request(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        before = (await get(stack, "audit")).json["last"]
        await made(stack, 5)
        first = (await get(stack, f"audit?after={before}&limit=3")).json
        rest = (await get(stack, f"audit?after={first['entries'][-1]['seq']}&limit=3")).json
        targets = [line["target"] for line in (*first["entries"], *rest["entries"])]
        assert targets == [f"shop/k{number}" for number in range(5)]
        assert first["last"] == rest["last"] == before + 5
        newest = (await get(stack, "audit?newest=true&limit=2")).json["entries"]
        assert [line["target"] for line in newest] == ["shop/k4", "shop/k3"]


@pytest.mark.parametrize("query", ["limit=ten", "after=-1", "limit=1e3"])
async def test_a_parameter_that_is_no_number_is_named(tmp_path: Path, query: str) -> None:
    async with gateway(tmp_path) as stack:
        reply = await get(stack, f"audit?{query}")
        assert (reply.status, reply.error["param"]) == (400, query.partition("=")[0])


async def test_an_unbroken_chain_is_verified_with_the_hash_of_its_end(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await made(stack, 2)
        last = (await get(stack, "audit?newest=true&limit=1")).json["entries"][0]
        verdict = (await get(stack, "audit/verify")).json
        assert (verdict["ok"], verdict["head"], verdict["broken_at"]) == (True, last["hash"], None)
