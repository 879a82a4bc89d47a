"""A lookup beside a deployment: whoever answers first is served, and the other is let go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, question, similar, until
from tests.gateway.cache.test_semantic_stage import NEAR, SLOW_S, STORED
from tests.gateway.scripted import hang
from tests.gateway.stack import encode


@pytest.mark.parametrize("stream", [True, False])
async def test_the_deployment_that_was_called_meanwhile_is_let_go_at_once(tmp_path: Path, stream: bool) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        stack.small.otherwise = hang
        reply = await call(stack, NEAR, stream=stream)

        assert cache_of(reply) == "hit-semantic"
        assert len(stack.small.received) == 2, "it was asked in the lookup's shadow"
        await asyncio.wait_for(stack.small.gone.wait(), 60)
        await stack.until_idle()


async def test_a_deployment_that_is_faster_answers_and_nothing_is_cut(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        may_run = encoder.hold()
        reply = await call(stack, NEAR)
        may_run.set()

        assert (cache_of(reply), reply.status) == ("miss", 200)
        assert stack.lines()[-1]["outcome"] == "completed"
        await until(lambda: stack.gateway._cache.semantic.num_entries == 2)


async def test_a_client_that_leaves_during_the_lookup_leaves_nothing_behind(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        stack.small.otherwise = hang
        may_run = encoder.hold()
        _, writer = await stack.connect()
        writer.write(encode(question(NEAR)))
        await asyncio.wait_for(encoder.has_begun.wait(), 60)
        await until(lambda: len(stack.small.received) == 2)
        writer.close()
        await asyncio.wait_for(stack.small.gone.wait(), 60)
        await stack.until_idle()
        may_run.set()
        await until(lambda: stack.lines())
        assert stack.lines()[-1]["outcome"] == "cancelled"
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await call(stack, NEAR)) == "hit-semantic", "and it still works"
