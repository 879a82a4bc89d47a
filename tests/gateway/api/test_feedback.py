"""Feedback: an answer that was called wrong is not given again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.cache.exact.test_exact_cache import Held, cached_policy, one_stream
from tests.gateway.stack import chat, running


async def test_an_answer_reported_to_be_wrong_is_not_given_again(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        await stack.call(chat())
        served = await stack.call(chat())
        feedback = {"request_id": served.headers["x-request-id"], "verdict": "wrong"}
        reported = await stack.call(feedback, path="/v1/feedback")
        after = await stack.call(chat())

        assert (reported.status, reported.json["quarantined"]) == (200, True)
        assert after.headers["x-penstock-cache"] == "miss"
        assert len(stack.small.received) == 2


@pytest.mark.parametrize(
    ("document", "status", "code", "param"),
    [
        ({"request_id": "nobody", "verdict": "wrong"}, 404, "not_found", "request_id"),
        ({"request_id": "x", "verdict": "bad"}, 400, "invalid_value", "verdict"),
        ({"verdict": "wrong"}, 400, "invalid_value", "request_id"),
        ({"request_id": "x", "verdict": "wrong", "more": 1}, 400, "invalid_value", "more"),
        ([], 400, "invalid_json", None),
    ],
)
async def test_feedback_that_means_nothing_is_refused(
    tmp_path: Path, document: object, status: int, code: str, param: str | None
) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        reply = await stack.call(document, path="/v1/feedback")
        assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)


async def test_a_request_that_shared_an_answer_may_call_it_wrong_and_the_same_words_are_not_stored_again(
    tmp_path: Path,
) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = asyncio.create_task(stack.call(chat(stream=True)))
        await held.has_begun.wait()
        follower = asyncio.create_task(stack.call(chat(stream=True)))
        await asyncio.sleep(0.05)  # it has joined
        held.may_end.set()
        shared = (await asyncio.gather(leader, follower))[1]
        feedback = {"request_id": shared.headers["x-request-id"], "verdict": "wrong"}
        assert (await stack.call(feedback, path="/v1/feedback")).status == 200

        stack.small.otherwise = one_stream
        requested = [(await stack.call(chat(stream=True))).headers["x-penstock-cache"] for _ in range(2)]
        assert requested == ["miss", "miss"]
