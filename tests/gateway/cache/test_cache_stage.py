"""The cache on a request's way: shared answers under way, and what is worth keeping."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cache.exact.test_exact_cache import WITH_USAGE, Held, cached_policy, one_stream, text_of
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Stack, chat, encode, running


async def test_a_long_stream_is_moved_off_the_loop_and_then_given(tmp_path: Path) -> None:
    async def long_one(wire: Wire) -> None:
        await wire.start_stream()
        for data in (*[chunk("word ")] * 3000, chunk(finish="stop"), chunk(usage=(7, 2)), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = long_one
        first = await stack.call(chat(**WITH_USAGE))
        for _ in range(400):
            if stack.gateway._cache.exact.num_entries:
                break
            await asyncio.sleep(0.005)
        second = await stack.call(chat(**WITH_USAGE))
        assert second.headers["x-penstock-cache"] == "hit-exact"
        assert text_of(second.body) == text_of(first.body) == "word " * 3000


def question_of(text: str, **fields: Any) -> Any:
    return chat(messages=[{"role": "user", "content": text}], **fields)


async def results(stack: Stack, *requests: Any) -> list[str]:
    return [(await stack.call(request)).headers["x-penstock-cache"] for request in requests]


async def test_a_question_about_now_is_never_served_from_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        question = question_of("What time is it now?")
        assert await results(stack, question, question) == ["bypass", "bypass"]
        assert len(stack.small.received) == 2


async def test_a_personal_answer_of_one_user_is_not_given_to_another(tmp_path: Path) -> None:
    questions = [question_of("What is my balance?", user=user) for user in ("anna", "bert", "anna")]
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        assert await results(stack, *questions) == ["bypass"] * 3
    for lifted in ("scope: user", "personal: per_user"):
        folder = tmp_path / lifted.partition(":")[0]
        folder.mkdir()
        policy = cached_policy(folder, f"    cache: {{mode: exact, ttl_s: 60, {lifted}}}\n")
        async with running(folder, policy=policy) as stack:
            assert await results(stack, *questions) == ["miss", "miss", "hit-exact"], lifted
            nameless = question_of("What is my balance?")
            assert await results(stack, nameless, nameless) == ["bypass", "bypass"]


async def test_a_route_may_reuse_answers_about_now(tmp_path: Path) -> None:
    policy = cached_policy(tmp_path, "    cache: {mode: exact, ttl_s: 60, time_dependent: reuse}\n")
    async with running(tmp_path, policy=policy) as stack:
        question = question_of("What time is it now?")
        assert await results(stack, question, question) == ["miss", "hit-exact"]


async def test_a_broken_off_stream_is_not_stored(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("Hel"))
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = broken
        await stack.call(chat(stream=True))
        stack.small.otherwise = one_stream
        reply = await stack.call(chat(stream=True))
        assert reply.headers["x-penstock-cache"] == "miss"
        assert text_of(reply.body) == "Hello"


async def test_an_upstream_error_is_not_stored(tmp_path: Path) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}', 400)

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        normal, stack.small.otherwise = stack.small.otherwise, refuse
        assert (await stack.call(chat())).status == 400
        stack.small.otherwise = normal
        assert (await stack.call(chat())).headers["x-penstock-cache"] == "miss"


async def test_identical_requests_in_flight_share_one_upstream_call(tmp_path: Path) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = asyncio.create_task(stack.call(chat(**WITH_USAGE)))
        await held.has_begun.wait()
        followers = [asyncio.create_task(stack.call(chat(**fields))) for fields in (WITH_USAGE, {"stream": True}, {})]
        await asyncio.sleep(0.05)  # they have joined
        held.may_end.set()
        replies = await asyncio.gather(leader, *followers)

        assert [text_of(reply.body) for reply in replies[:3]] == ["Hello"] * 3
        assert replies[3].json["choices"][0]["message"]["content"] == "Hello"
        assert [reply.headers["x-penstock-cache"] for reply in replies] == ["miss", *["hit-exact"] * 3]
        assert len(stack.small.received) == 1
        await stack.until_idle()
        stack.check_integrity()


async def test_counts_of_the_leaders_prediction_are_not_shared(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def counting(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("Hello"))
        await may_end.wait()
        last = json.loads(chunk(usage=(7, 3)))
        last["usage"]["completion_tokens_details"] = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}
        for data in (chunk(finish="stop"), json.dumps(last).encode(), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = counting
        predicting = chat(**WITH_USAGE, prediction={"type": "content", "content": "Hello"})
        leader = asyncio.create_task(stack.call(predicting))
        follower = asyncio.create_task(stack.call(chat(**WITH_USAGE)))
        await asyncio.sleep(0.05)  # it has joined
        may_end.set()
        first, second = await asyncio.gather(leader, follower)
        assert b'"accepted_prediction_tokens"' in first.body
        assert second.headers["x-penstock-cache"] == "hit-exact"
        assert b'"completion_tokens"' in second.body
        assert b"_prediction_tokens" not in second.body


@pytest.mark.parametrize("fields", [{}, WITH_USAGE])
async def test_nobody_waits_for_an_answer_under_way_that_will_lack_what_they_request(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.scripts = [held, one_stream]
        leader = asyncio.create_task(stack.call(chat(stream=True)))
        await held.has_begun.wait()
        reply = await stack.call(chat(**fields))
        assert reply.headers["x-penstock-cache"] == "miss"
        assert b'"completion_tokens":' in reply.body
        held.may_end.set()
        assert text_of((await leader).body) == "Hello"


async def join(stack: Stack) -> asyncio.StreamWriter:
    """A client that requested a stream and got its first bytes."""
    reader, writer = await stack.connect()
    writer.write(encode(chat(stream=True)))
    await asyncio.wait_for(reader.readuntil(b"Hel"), 5)
    return writer


async def test_the_leader_may_leave_while_others_follow(tmp_path: Path) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = await join(stack)
        follower = asyncio.create_task(stack.call(chat(stream=True)))
        await asyncio.sleep(0.05)
        leader.close()
        await asyncio.sleep(0.05)
        held.may_end.set()

        assert text_of((await follower).body) == "Hello"
        assert len(stack.small.received) == 1
        await stack.until_idle()
        outcomes = sorted(line["outcome"] for line in stack.lines())
        assert outcomes == ["cached", "cancelled"]


async def test_a_follower_that_leaves_changes_nothing(tmp_path: Path) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = asyncio.create_task(stack.call(chat(stream=True)))
        await held.has_begun.wait()
        follower = await join(stack)
        follower.close()
        await asyncio.sleep(0.05)
        held.may_end.set()
        assert text_of((await leader).body) == "Hello"


async def test_when_the_last_of_all_has_left_the_work_is_called_off(tmp_path: Path) -> None:
    held = Held()
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = await join(stack)
        follower = await join(stack)
        leader.close()
        await asyncio.sleep(0.05)
        assert held.wire is not None
        assert not held.wire.is_gone.is_set(), "somebody still waits"
        follower.close()
        await asyncio.wait_for(held.wire.is_gone.wait(), 2)
        held.may_end.set()
        await stack.until_idle()
        stack.check_integrity()


async def test_followers_of_a_leader_that_fails_call_on_their_own(tmp_path: Path) -> None:
    begun = asyncio.Event()
    fail = asyncio.Event()

    async def failing_once(wire: Wire) -> None:
        if begun.is_set():
            await one_stream(wire)
            return
        begun.set()
        await fail.wait()
        await wire.answer(b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}', 400)

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = failing_once
        leader = asyncio.create_task(stack.call(chat(stream=True)))
        await begun.wait()
        followers = [asyncio.create_task(stack.call(chat(stream=True))) for _ in range(3)]
        await asyncio.sleep(0.05)
        fail.set()
        assert (await leader).status == 400
        assert [text_of(reply.body) for reply in await asyncio.gather(*followers)] == ["Hello"] * 3
        assert len(stack.small.received) == 2
