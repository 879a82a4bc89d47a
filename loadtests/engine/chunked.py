"""Chunked prefill: the gaps of streams while one long prompt is computed, beside the same streams' gaps just before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from loadtests.clients.completions import TokenStream, stream_tokens
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Finding, Prompts, Setting
from loadtests.harness.measures import percentile
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import start_engine

_LONG_TOKENS = 3500
_NUM_CHATS = 8
_CHAT_TOKENS = 32
_ALONE_S = 1.0
_MIN_REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    alone: list[float]
    """Gaps between tokens before the long prompt arrives, in seconds."""
    beside: list[float]
    """The same until its first token."""
    ttft_s: float
    """Of the long prompt."""


async def measure_chunked(setting: Setting) -> Finding:
    """One prompt of 3,500 tokens arriving while 8 chats decode."""
    prompts = Prompts(setting.model, setting.seed)
    repeats: list[_Round] = []
    async with Workbench() as bench:
        engine = (await start_engine(bench, setting.model, *setting.flags("--speculation", "off"))).address
        await _one_round(engine, prompts)  # teaches the step-time model
        end_at = clock() + setting.seconds
        while len(repeats) < _MIN_REPEATS or clock() < end_at:
            repeats.append(await _one_round(engine, prompts))
    alone = [gap for each in repeats for gap in each.alone]
    beside = [gap for each in repeats for gap in each.beside]
    p99 = percentile(alone, 0.99), percentile(beside, 0.99)
    p50 = percentile(alone, 0.5), percentile(beside, 0.5)
    each_ratio = (percentile(each.beside, 0.99) / percentile(each.alone, 0.99) for each in repeats)
    return Finding(
        results={
            "chunked_itl_ratio": p99[1] / p99[0],
            "chunked_itl_p50_ratio": p50[1] / p50[0],
            "alone_itl_p99_ms": 1e3 * p99[0],
            "chunked_itl_p99_ms": 1e3 * p99[1],
            "long_prompt_ttft_p50_ms": 1e3 * percentile([each.ttft_s for each in repeats], 0.5),
        },
        notes=[
            f"chunked: gaps of {_NUM_CHATS} streams, p99 of all {len(repeats)} rounds together while a prompt of "
            f"{_LONG_TOKENS} tokens is computed ({len(beside)} gaps, p50 {1e3 * p50[1]:.1f} ms) over that in the "
            f"second before ({len(alone)} gaps, p50 {1e3 * p50[0]:.1f} ms)",
            "chunked: p99 ratio of each round: " + ", ".join(f"{ratio:.2f}" for ratio in each_ratio),
        ],
    )


async def _one_round(address: Address, prompts: Prompts) -> _Round:
    room = prompts.max_model_len - _CHAT_TOKENS - 8
    chats = [TokenStream(sent_at=clock()) for _ in range(_NUM_CHATS)]
    tasks = [asyncio.create_task(stream_tokens(address, prompts.of(_CHAT_TOKENS), room, seen=chat)) for chat in chats]
    try:
        while not all(len(chat.instants) > 16 for chat in chats):
            await asyncio.sleep(0.01)
        begin = clock()
        await asyncio.sleep(_ALONE_S)
        middle = clock()
        long_prompt = await stream_tokens(address, prompts.of(_LONG_TOKENS), 1)
        end = clock()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _Round(
        alone=[gap for chat in chats for gap in chat.gaps_between(begin, middle)],
        beside=[gap for chat in chats for gap in chat.gaps_between(middle, end)],
        ttft_s=long_prompt.ttft_s,
    )
