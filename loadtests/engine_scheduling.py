"""What the engine's scheduler is for: shared prefixes, long prompts beside streams, a full pool, continuous batching.

Everything compared is measured in turn within one run on one engine, so both sides see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

from loadtests.card import Card, Value
from loadtests.client import Address, clock
from loadtests.engine_probe import read_load
from loadtests.lengths import Lengths, draw_lengths
from loadtests.measures import percentile
from loadtests.processes import Workbench
from loadtests.stack import metric, start_engine
from loadtests.token_stream import TokenStream, stream_tokens

_SHARED_TOKENS = 2000
_OWN_TOKENS = 16
_LONG_TOKENS = 3500
_NUM_CHATS = 8
_CHAT_TOKENS = 32
_BATCH_ROWS = 32
_POOL_BLOCKS = 640

Results = dict[str, Value]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-large"), help="folder")
    parser.add_argument("--data", type=Path, help="folder with traces/azure2023_conv.csv.gz")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 takes every core (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts and lengths (default %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests, to keep it short")
    parser.add_argument("--only", choices=sorted(_SECTIONS), action="append", help="a section (default: all)")


class Prompts:
    """Random token ids; no two prompts share a block."""

    def __init__(self, model_dir: Path, seed: int) -> None:
        config = json.loads((model_dir / "config.json").read_text())
        self._vocab = int(config["vocab_size"]) * 9 // 10  # special tokens lie at the end
        self.max_model_len = int(config["max_position_embeddings"])
        self.rng = random.Random(seed)

    def of(self, num_tokens: int) -> list[int]:
        """One prompt."""
        return [self.rng.randrange(self._vocab) for _ in range(num_tokens)]


async def run(options: argparse.Namespace) -> Card:
    """Measure every section asked for."""
    results: Results = {"model": options.model.name}
    notes: list[str] = []
    for name in options.only or _SECTIONS:
        found, said = await _SECTIONS[name](options)
        results |= found
        notes += said
    return Card(
        bench="engine_scheduling",
        arrivals="closed: requests in bursts or a fixed number at a time, both sides of a ratio in turn",
        results=results,
        notes=tuple(notes),
    )


async def measure_prefix(options: argparse.Namespace) -> tuple[Results, list[str]]:
    """First token with a shared prefix cached and not; how often a burst computes the prefix."""
    model = options.model.resolve()
    prompts = Prompts(model, options.seed)
    num_requests = max(5, int(100 * options.scale))
    async with Workbench() as bench:
        engine = await start_engine(bench, model, *_flags(options))
        shared = prompts.of(_SHARED_TOKENS)
        await stream_tokens(engine.address, shared, 1, headers=_salt("warm"))
        cold, warm = [], []
        for number in range(max(5, num_requests // 5)):
            prompt = shared + prompts.of(_OWN_TOKENS)
            cold.append((await stream_tokens(engine.address, prompt, 1, headers=_salt(f"cold{number}"))).ttft_s)
            warm.append((await stream_tokens(engine.address, prompt, 1, headers=_salt("warm"))).ttft_s)
        hits = await metric(engine.address, "engine_prefix_cache_hits_tokens_total")
        burst = [shared + prompts.of(_OWN_TOKENS) for _ in range(num_requests)]
        await asyncio.gather(*(stream_tokens(engine.address, prompt, 4, headers=_salt("burst")) for prompt in burst))
        hits = await metric(engine.address, "engine_prefix_cache_hits_tokens_total") - hits
    computed = (num_requests * _SHARED_TOKENS - hits) / _SHARED_TOKENS
    return {
        "prefix_ttft_ratio": median(cold) / median(warm),
        "prefix_cold_ttft_p50_ms": 1e3 * median(cold),
        "prefix_warm_ttft_p50_ms": 1e3 * median(warm),
        "prefix_computed_times": computed,
        "prefix_requests": num_requests,
    }, [f"prefix: {_SHARED_TOKENS} shared tokens computed {computed:.3f} times by a burst of {num_requests} requests"]


async def measure_chunked(options: argparse.Namespace) -> tuple[Results, list[str]]:
    """Gaps of streams while one long prompt is prefilled, beside the same streams' gaps just before."""
    model = options.model.resolve()
    prompts = Prompts(model, options.seed)
    plain: list[float] = []
    mixed: list[float] = []
    prefill_s: list[float] = []
    async with Workbench() as bench:
        engine = await start_engine(bench, model, *_flags(options), "--speculation", "off")
        for number in range(1 + max(2, round(5 * options.scale))):
            before, during, seconds = await _chats_and_long_prompt(engine.address, prompts)
            if number:  # the first round teaches the step-time model
                plain += before
                mixed += during
                prefill_s.append(seconds)
    ratio = percentile(mixed, 0.99) / percentile(plain, 0.99)
    return {
        "chunked_itl_ratio": ratio,
        "chunked_itl_p50_ratio": percentile(mixed, 0.5) / percentile(plain, 0.5),
        "plain_itl_p99_ms": 1e3 * percentile(plain, 0.99),
        "chunked_itl_p99_ms": 1e3 * percentile(mixed, 0.99),
        "long_prompt_ttft_p50_ms": 1e3 * median(prefill_s),
    }, [
        f"chunked: gaps p50 {1e3 * percentile(plain, 0.5):.1f} ms alone ({len(plain)}), "
        f"{1e3 * percentile(mixed, 0.5):.1f} ms beside a prompt of {_LONG_TOKENS} tokens ({len(mixed)})"
    ]


async def _chats_and_long_prompt(address: Address, prompts: Prompts) -> tuple[list[float], list[float], float]:
    """(gaps before, gaps while the long prompt is prefilled, its time to first token)."""
    room = prompts.max_model_len - _CHAT_TOKENS - 8
    chats = [TokenStream(sent_at=clock()) for _ in range(_NUM_CHATS)]
    tasks = [asyncio.create_task(stream_tokens(address, prompts.of(_CHAT_TOKENS), room, seen=chat)) for chat in chats]
    try:
        while not all(len(chat.instants) > 16 for chat in chats):
            await asyncio.sleep(0.01)
        begin = clock()
        await asyncio.sleep(1.0)
        middle = clock()
        long_prompt = await stream_tokens(address, prompts.of(_LONG_TOKENS), 1)
        end = clock()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    before = [gap for chat in chats for gap in chat.gaps_between(begin, middle)]
    during = [gap for chat in chats for gap in chat.gaps_between(middle, end)]
    return before, during, long_prompt.ttft_s


async def measure_kv_use(options: argparse.Namespace) -> tuple[Results, list[str]]:
    """How much of a pool that is too small for its load holds live tokens."""
    model = options.model.resolve()
    prompts = Prompts(model, options.seed)
    count = max(40, int(160 * options.scale))
    lengths = draw_lengths(options.data, count, max_total_tokens=900, rng=prompts.rng)
    held: list[float] = []
    used: list[float] = []
    async with Workbench() as bench:
        flags = ("--num-blocks", str(_POOL_BLOCKS), "--max-num-rows", "64", "--speculation", "off")
        engine = await start_engine(bench, model, *_flags(options), *flags)
        load = asyncio.create_task(_run_at_once(engine.address, prompts, lengths, 64))
        while not load.done():
            seen = await read_load(engine.address)
            if seen.num_waiting and seen.num_blocks_held:
                held.append(seen.num_blocks_held / seen.num_blocks_total)
                used.append(seen.num_kv_tokens / (seen.num_blocks_held * 16))
            await asyncio.sleep(0.02)
        await load
        preemptions = await metric(engine.address, "engine_preemptions_total")
    mean_tokens = sum(map(sum, lengths.pairs)) / count
    return {
        "kv_use": median(used) if used else None,
        "kv_pool_held_ratio": median(held) if held else None,
        "kv_preemptions": int(preemptions),
        "kv_mean_tokens": mean_tokens,
    }, [f"kv: {len(used)} readings while sequences waited for blocks; {lengths.source}, mean {mean_tokens:.0f} tokens"]


async def measure_batching(options: argparse.Namespace) -> tuple[Results, list[str]]:
    """Output tokens per second with rows refilled as they end, beside batches that wait for their longest."""
    model = options.model.resolve()
    prompts = Prompts(model, options.seed)
    count = _BATCH_ROWS * max(2, round(4 * options.scale))
    limit = min(1024, prompts.max_model_len)
    lengths = draw_lengths(options.data, count, max_total_tokens=limit, rng=prompts.rng)
    async with Workbench() as bench:
        flags = ("--max-num-rows", str(_BATCH_ROWS), "--speculation", "off")
        engine = await start_engine(bench, model, *_flags(options), *flags)
        await _run_in_batches(engine.address, prompts, Lengths(pairs=lengths.pairs[:_BATCH_ROWS], source=""))
        static_s = await _run_in_batches(engine.address, prompts, lengths)
        continuous_s = await _run_at_once(engine.address, prompts, lengths, _BATCH_ROWS)
    num_tokens = sum(output for _, output in lengths.pairs)
    return {
        "batching_ratio": static_s / continuous_s,
        "continuous_tokens_per_s": num_tokens / continuous_s,
        "static_tokens_per_s": num_tokens / static_s,
        "batching_lengths": lengths.source,
    }, [f"batching: {count} requests, {num_tokens} output tokens, {_BATCH_ROWS} rows; {lengths.source}"]


async def _run_in_batches(address: Address, prompts: Prompts, lengths: Lengths) -> float:
    """Seconds for all, a batch starting when the one before has ended."""
    started_at = clock()
    for first in range(0, len(lengths.pairs), _BATCH_ROWS):
        batch = lengths.pairs[first : first + _BATCH_ROWS]
        await asyncio.gather(*(stream_tokens(address, prompts.of(length), output) for length, output in batch))
    return clock() - started_at


async def _run_at_once(address: Address, prompts: Prompts, lengths: Lengths, num_clients: int) -> float:
    """Seconds for all, so many in flight."""
    left = list(reversed(lengths.pairs))

    async def client() -> None:
        while left:
            length, output = left.pop()
            await stream_tokens(address, prompts.of(length), output)

    started_at = clock()
    await asyncio.gather(*(client() for _ in range(num_clients)))
    return clock() - started_at


def _flags(options: argparse.Namespace) -> Sequence[str]:
    return ("--num-threads", str(options.threads), "--log-level", "warning")


def _salt(name: str) -> tuple[tuple[str, str], ...]:
    return (("x-penstock-cache-salt", name),)


_SECTIONS: dict[str, Callable[[argparse.Namespace], Awaitable[tuple[Results, list[str]]]]] = {
    "prefix": measure_prefix,
    "chunked": measure_chunked,
    "kv_use": measure_kv_use,
    "batching": measure_batching,
}
