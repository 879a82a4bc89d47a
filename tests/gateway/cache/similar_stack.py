"""A gateway whose first route takes similar answers, with an encoder of words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.admission.guard import OverloadGuard
from gateway.cache.audit.match_models import MatchModels
from gateway.cache.audit.route_stats import RouteStats, TenantRoute
from tests.gateway.cache.exact.test_exact_cache import cached_policy
from tests.gateway.cache.word_encoder import NearMatchModel, WordEncoder
from tests.gateway.scripted import Wire
from tests.gateway.stack import Reply, Stack, chat, running

PATIENCE_S = 60.0
ME = TenantRoute("dev", "main")


def similar_policy(folder: Path, cache: str = "ttl_s: 60, audit_ratio: 0.0", **values: Any) -> str:
    """The test policy with the semantic tier on its first route."""
    return cached_policy(folder, f"    cache: {{mode: exact_then_semantic, {cache}}}\n", **values)


@asynccontextmanager
async def similar(
    folder: Path,
    cache: str = "ttl_s: 60, audit_ratio: 0.0",
    *,
    policy: str | None = None,
    settings: Mapping[str, Any] | None = None,
    calibrated_for: str | None = None,
    **values: Any,
) -> AsyncIterator[tuple[Stack, WordEncoder]]:
    """Ready to embed."""
    encoder = WordEncoder()
    async with running(
        folder,
        policy=policy or similar_policy(folder, cache, **values),
        settings=settings,
        load_encoder=encoder.load,
        match_models=MatchModels(
            first=NearMatchModel(), encoder_id=calibrated_for, learn=lambda samples: NearMatchModel()
        ),
    ) as stack:
        # A machine that is busy with other tests is no reason to audit less.
        stack.gateway._cache.auditor._guard = OverloadGuard(memory_limit_bytes=None, resident_bytes=lambda: None)
        await until(lambda: stack.gateway._cache.semantic._index is not None)
        yield stack, encoder


async def until(is_so: Any) -> None:
    """Wait until it is."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)


def question(text: str, **fields: Any) -> dict[str, Any]:
    """A request."""
    return {**chat(), "messages": [{"role": "user", "content": text}], **fields}


async def call(stack: Stack, text: str, **fields: Any) -> Reply:
    """Its answer."""
    return await stack.call(question(text, **fields))


async def keep(stack: Stack, text: str, **fields: Any) -> Reply:
    """Call something new, and wait until similar questions can find it."""
    before = stack.gateway._cache.semantic.num_entries
    reply = await call(stack, text, **fields)
    assert (reply.status, cache_of(reply)) == (200, "miss"), reply.body[:500]
    await until(lambda: stack.gateway._cache.semantic.num_entries > before)
    return reply


def cache_of(reply: Reply) -> str:
    """What the cache did."""
    return reply.headers["x-penstock-cache"]


def stats_of(stack: Stack, whose: TenantRoute = ME) -> RouteStats:
    """What the gateway knows of one tenant's route."""
    return stack.gateway._cache.route_stats.of(whose)


def echo(delay_s: float = 0.0) -> Any:
    """An upstream that repeats what it was called."""

    async def script(wire: Wire) -> None:
        await asyncio.sleep(delay_s)
        text = wire.request.json["messages"][-1]["content"]
        await wire.answer(completion(f"You asked: {text}"))

    return script


def completion(text: str) -> bytes:
    """A whole answer."""
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    ).encode()
