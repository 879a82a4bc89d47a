"""Responses that found the encoder busy are found by similar questions later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.embedding.embedder import Embedder
from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, similar, until
from tests.gateway.cache.test_semantic_stage import NEAR, SLOW_S, STORED
from tests.gateway.scripted import hang
from tests.gateway.stack import Stack


async def metrics_of(stack: Stack) -> str:
    return (await stack.get("/metrics", admin=True)).body.decode()


@contextmanager
def unloaded(embedder: Embedder) -> Iterator[None]:
    """Take the encoder away, as before it is loaded."""
    loaded, embedder._encoder = embedder._encoder, None
    embedder._is_idle.clear()
    yield
    embedder._encoder = loaded
    embedder._is_idle.set()


async def test_what_found_a_full_queue_is_indexed_once_the_encoder_has_time(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        answers = stack.gateway._cache
        may_run, answers.embedder._max_waiting = encoder.hold(), 1
        for text in ("Which trees grow by the sea?", "Where do old ships go at night?", STORED):
            assert cache_of(await call(stack, text)) == "miss"
            await encoder.has_begun.wait()
        assert (answers.embedder.num_waiting, answers.late.num_waiting) == (1, 1)
        assert "penstock_cache_index_waiting 1.0" in await metrics_of(stack)
        may_run.set()
        await until(lambda: answers.semantic.num_entries == 3)

        assert 'penstock_cache_late_index_total{end="indexed"} 1.0' in await metrics_of(stack)
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"


async def test_what_came_before_the_encoder_was_loaded_is_indexed_later(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        answers = stack.gateway._cache
        with unloaded(answers.embedder):
            assert cache_of(await call(stack, STORED)) == "miss"
            assert answers.late.num_waiting == 1
            await asyncio.sleep(0)
            assert answers.late.num_waiting == 1
        await until(lambda: answers.semantic.num_entries == 1)


async def test_what_is_purged_meanwhile_is_not_indexed(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        answers = stack.gateway._cache
        with unloaded(answers.embedder):
            await call(stack, STORED)
            purge = {"text": STORED, "dry_run": False}
            assert (await stack.call(purge, path="/admin/api/cache/purge", admin=True)).status == 200
        await until(lambda: answers.late.num_waiting == 0)
        assert 'penstock_cache_late_index_total{end="gone"} 1.0' in await metrics_of(stack)


async def test_tokens_that_a_deployment_had_been_sent_are_not_saved(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        stack.small.otherwise = hang
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        assert cache_of(await call(stack, STORED)) == "hit-exact"
        metrics = await metrics_of(stack)
        assert 'penstock_cut_short_tokens_total{source="hit-semantic"} 10.0' in metrics.replace(
            "_semantic", "-semantic"
        )
        assert 'saved_tokens_total{source="hit_semantic"}' not in metrics
        assert 'saved_tokens_total{source="hit_exact"} 10.0' in metrics
