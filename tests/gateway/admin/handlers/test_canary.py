"""Canaries at the admin API: started, promoted and refused."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.handlers.test_policy import in_force
from tests.gateway.policies.test_canary import CANARY, call, gateway, start, to_the_other, until_ended


async def test_a_good_canary_is_promoted_by_hand_with_its_evidence(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        await start(stack, to_the_other(seed["document"]))
        await call(stack)
        done = await stack.call({"reason": "it is good"}, admin=True, path=f"{CANARY}/promote")
        assert (done.status, done.json["revision"]["kind"]) == (200, "promote")
        assert done.json["revision"]["evidence"]["metrics"][0]["name"] == "error"
        assert (await until_ended(stack))["state"] == "promoted"
        assert {(await call(stack)).headers["x-penstock-deployment"] for _ in range(10)} == {"large"}


async def test_what_is_shared_by_all_traffic_has_no_canary(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        refused = await start(stack, seed["document"].replace("max_queue: 8", "max_queue: 9"))
        assert (refused.status, refused.error["code"]) == (400, "not_separable")
        assert (await start(stack, seed["document"] + "# nothing\n")).error["code"] == "not_separable"
        assert (await start(stack, "schema_version: 1\n")).error["code"] == "invalid_policy"
