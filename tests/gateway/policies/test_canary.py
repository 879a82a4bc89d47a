"""A canary beside the policy in force: whom it serves, how it ends, and that its evidence stays."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.admin.handlers.test_policy import POLICY, apply, in_force, stored
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Reply, Stack, chat

CANARY = f"{POLICY}/canary"
PATIENCE_S = 60.0
_people = itertools.count()


@asynccontextmanager
async def gateway(folder: Path, **settings: Any) -> AsyncIterator[Stack]:
    async with stored(folder, **settings) as stack, asyncio.timeout(PATIENCE_S):
        yield stack


def to_the_other(document: str) -> str:
    """The large model first."""
    return document.replace("candidates: [small, large]", "candidates: [large, small]")


async def start(stack: Stack, document: str, **fields: Any) -> Reply:
    etag = (await in_force(stack))["etag"]
    body = {"document": document, "reason": "try the large one", "percent": 50, **fields}
    return await stack.call(body, admin=True, path=CANARY, headers={"if-match": etag})


async def call(stack: Stack, **fields: Any) -> Reply:
    return await stack.call(chat(user=f"person-{next(_people)}", **fields))


async def until_ended(stack: Stack) -> Any:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        found = (await stack.get(CANARY, admin=True)).json
        if found["canary"] is None and found["past"]:
            return found["past"][0]
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.05)


async def test_a_share_of_the_conversations_is_served_by_the_canary_always_the_same_ones(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        assert (await start(stack, to_the_other(seed["document"]))).status == 201
        sides = {}
        for number in range(40):
            body = chat(user=f"u{number}")
            first, second = [await stack.call(body) for _ in range(2)]
            assert first.headers["x-penstock-policy"] == second.headers["x-penstock-policy"]
            sides[number] = (first.headers["x-penstock-policy"], first.headers["x-penstock-deployment"])
        canary = (await in_force(stack))["canary"]
        assert set(sides.values()) == {(seed["revision"]["revision"], "small"), (canary["revision"], "large")}
        refused = await apply(stack, seed["document"] + "#\n", etag=seed["etag"])
        assert (refused.status, refused.error["code"]) == (409, "canary_running")
        assert (await start(stack, seed["document"] + "# 2\n")).status in (400, 409)


async def test_a_canary_that_fails_is_rolled_back_by_itself_and_gives_the_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        wrong = (
            seed["document"]
            .replace("candidates: [small, large]", "candidates: [ghost]")
            .replace(
                "deployments:\n", f'deployments:\n  - {{id: ghost, url: "unix:{tmp_path}/ghost.sock", model: ghost}}\n'
            )
        )
        assert (await start(stack, wrong, guard={"min_requests": 10})).status == 201
        while (await in_force(stack))["canary"] is not None:
            await asyncio.gather(*(call(stack) for _ in range(8)))
        ended = await until_ended(stack)
        assert (ended["state"], ended["ended_by"]) == ("rolled_back", "system")
        assert "against" in ended["why"]
        worse = {metric["name"] for metric in ended["evidence"]["metrics"] if metric["verdict"] == "worse"}
        assert worse & {"error", "shed"}
        replies = [await call(stack) for _ in range(20)]
        assert {reply.status for reply in replies} == {200}, replies[0].body
        assert (await in_force(stack))["etag"] == seed["etag"]
        actions = [entry["action"] for entry in (await stack.get("/admin/api/audit", admin=True)).json["entries"]]
        assert actions == ["canary.start", "canary.rolled_back"]


async def test_products_that_call_its_answers_wrong_end_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        assert (await start(stack, to_the_other(seed["document"]), guard={"min_requests": 10})).status == 201
        while (await in_force(stack))["canary"] is not None:
            for reply in await asyncio.gather(*(call(stack) for _ in range(8))):
                if reply.headers["x-penstock-deployment"] == "large":
                    reported = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
                    await stack.call(reported, path="/v1/feedback")
        assert "wrong: " in (await until_ended(stack))["why"]


async def test_a_good_canary_is_promoted_by_time(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        await start(stack, to_the_other(seed["document"]), promote_after_s=0.1, guard={"min_requests": 5})
        while (await in_force(stack))["canary"] is not None:
            await call(stack)
        assert (await until_ended(stack))["state"] == "promoted"
        assert (await in_force(stack))["revision"]["author"] == "system"


async def test_a_canary_runs_at_every_replica_and_stops_at_every_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    store = tmp_path / "store.sqlite3"
    async with (
        asyncio.timeout(PATIENCE_S),
        stored(tmp_path / "one", store) as one,
        stored(tmp_path / "two", store) as two,
    ):
        seed = await in_force(one)
        started = (await start(one, seed["document"].replace("total_ms: 20000", "total_ms: 30000"))).json["canary"]
        while started["revision"] not in {(await call(two)).headers["x-penstock-policy"] for _ in range(10)}:
            await asyncio.sleep(0.02)
        stopped = await two.call({"reason": "enough"}, admin=True, path=f"{CANARY}/stop")
        assert stopped.json["canary"]["state"] == "stopped"
        while (await in_force(one))["canary"] is not None:
            await asyncio.sleep(0.02)
        assert {(await call(one)).headers["x-penstock-policy"] for _ in range(10)} == {seed["revision"]["revision"]}


async def test_a_canary_whose_streams_fail_inside_is_rolled_back(tmp_path: Path) -> None:
    served = itertools.count()

    async def fails(wire: Wire) -> None:
        """One stream of three: fewer than would take the deployment out."""
        reason = "stop" if next(served) % 3 else "error"
        await wire.start_stream()
        for data in (chunk("hel"), chunk(finish=reason), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        stack.large.otherwise = fails
        assert (await start(stack, to_the_other(seed["document"]), guard={"min_requests": 10})).status == 201
        while (await in_force(stack))["canary"] is not None:
            await asyncio.gather(*(call(stack, stream=True) for _ in range(8)))
        ended = await until_ended(stack)
        assert ended["state"] == "rolled_back"
        assert "error" in {metric["name"] for metric in ended["evidence"]["metrics"] if metric["verdict"] == "worse"}


def without_solo(document: str) -> str:
    """A policy whose clients of the model `solo` get 404."""
    return document.partition("  - id: solo\n")[0]


async def test_a_canary_that_rejects_what_was_served_is_rolled_back(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        fields: dict[str, Any] = {"promote_after_s": 0.1, "guard": {"min_requests": 10}}
        assert (await start(stack, without_solo(seed["document"]), **fields)).status == 201
        statuses = set()
        while (await in_force(stack))["canary"] is not None:
            models = ["solo"] * 7 + ["auto"]
            statuses |= {reply.status for reply in await asyncio.gather(*(call(stack, model=name) for name in models))}
        ended = await until_ended(stack)
        assert (ended["state"], statuses) == ("rolled_back", {200, 404})
        worse = {metric["name"] for metric in ended["evidence"]["metrics"] if metric["verdict"] == "worse"}
        assert worse == {"rejected"}
        assert (await call(stack, model="solo")).status == 200


async def test_clients_own_mistakes_speak_against_neither_side(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        fields: dict[str, Any] = {"promote_after_s": 0.1, "guard": {"min_requests": 20}}
        assert (await start(stack, to_the_other(seed["document"]), **fields)).status == 201
        while (await in_force(stack))["canary"] is not None:
            await asyncio.gather(*(call(stack, model="unknown") for _ in range(8)))
        ended = await until_ended(stack)
        assert ended["state"] == "promoted"
        (rejected,) = [metric for metric in ended["evidence"]["metrics"] if metric["name"] == "rejected"]
        assert rejected["new"]["events"] == rejected["new"]["count"] >= 20
