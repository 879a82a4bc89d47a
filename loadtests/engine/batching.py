"""Continuous batching: rows refilled as they end, beside batches that stay together until their longest answer ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from loadtests.clients.completions import complete_tokens
from loadtests.clients.http_client import Address, clock
from loadtests.engine.lengths import draw_lengths
from loadtests.engine.part import Finding, Prompts, Setting
from loadtests.engine.repeats import Repeats
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import start_engine

_ROWS = 32
_NUM_PASSES = 8
"""Over the backlog, in batches that stay together: two repeats of two sides, prompts as long as the longest."""
_NO_GAP_TARGET = ("--itl-target-ms", "60000", "--prefill-slack-ratio", "1000")
"""Static batches guarantee nobody an even flow of tokens, so neither side holds prompts back for one here."""
_MIN_BATCHES, _MAX_BATCHES = 3, 16
_REPEATS = 2

Pairs = Sequence[tuple[int, int]]


async def measure_batching(setting: Setting) -> Finding:
    """Output tokens per second of one backlog, on the same engine with the same rows."""
    prompts = Prompts(setting.model, setting.seed)
    limit, num_requests = prompts.max_model_len, _ROWS * _MAX_BATCHES
    lengths = draw_lengths(setting.data, num_requests, max_total_tokens=limit, rng=prompts.rng)
    async with Workbench() as bench:
        flags = ("--max-num-seqs", str(_ROWS), "--speculation", "off", *_NO_GAP_TARGET)
        engine = (await start_engine(bench, setting.model, *setting.flags(*flags))).address
        await _continuous(engine, prompts, lengths.pairs[:_ROWS])
        batch_s = await _together(engine, prompts, lengths.pairs[:_ROWS])
        num_batches = max(_MIN_BATCHES, min(_MAX_BATCHES, int(setting.seconds / (_NUM_PASSES * batch_s))))
        pairs = lengths.pairs[: num_batches * _ROWS]
        sides = {
            "continuous": partial(_continuous, engine, prompts, pairs),
            "static": partial(_together, engine, prompts, pairs),
        }
        repeats = await Repeats(sides).run(0.0, at_least=_REPEATS)
        padded_s = await _padded(engine, prompts, pairs)
        early_s = await _leaving(engine, prompts, pairs)
        continuous_s = repeats.median("continuous")
    num_tokens = sum(output for _, output in pairs)
    return Finding(
        results={
            "batching_ratio": repeats.ratio("static", "continuous"),
            "batching_padded_ratio": padded_s / continuous_s,
            "batching_early_exit_ratio": early_s / continuous_s,
            "continuous_tok_s": num_tokens / continuous_s,
            "static_tok_s": num_tokens / repeats.median("static"),
            "batching_requests": len(pairs),
            "batching_lengths": lengths.source,
        },
        notes=[
            f"batching: {len(pairs)} requests waiting at once, {num_tokens} output tokens, {_ROWS} sequences",
            f"batching: {lengths.source}",
            "batching: static: every sequence is computed until the batch's longest answer ends, its tokens behind its "
            "own end count for nothing; padded: prompts are as long as the longest, too, as generate has them; "
            "early exit: sequences end by themselves and stay empty",
            *(f"seconds  {line}" for line in repeats.lines()),
            f"seconds  padded {padded_s:.4g}, early exit {early_s:.4g}",
        ],
    )


async def _continuous(engine: Address, prompts: Prompts, pairs: Pairs) -> float:
    """Seconds for a backlog that the engine may order as it likes."""
    return await _at_once(engine, prompts, pairs)


async def _together(engine: Address, prompts: Prompts, pairs: Pairs) -> float:
    """Seconds for batch after batch, all rows as long as the longest answer."""
    total_s = 0.0
    for batch in _batches(pairs):
        longest = max(output for _, output in batch)
        room = prompts.max_model_len
        total_s += await _at_once(engine, prompts, [(prompt, min(longest, room - prompt)) for prompt, _ in batch])
    return total_s


async def _padded(engine: Address, prompts: Prompts, pairs: Pairs) -> float:
    """The same where prompts are as long as the longest, too."""
    alike = [(max(prompt for prompt, _ in batch), output) for batch in _batches(pairs) for _, output in batch]
    return await _together(engine, prompts, alike)


async def _leaving(engine: Address, prompts: Prompts, pairs: Pairs) -> float:
    """Seconds for batch after batch, a row computed no longer than its answer."""
    return sum([await _at_once(engine, prompts, batch) for batch in _batches(pairs)])


def _batches(pairs: Pairs) -> list[Pairs]:
    return [pairs[first : first + _ROWS] for first in range(0, len(pairs), _ROWS)]


async def _at_once(engine: Address, prompts: Prompts, pairs: Pairs) -> float:
    requests = [(prompts.of(num_prompt), num_output) for num_prompt, num_output in pairs]
    started_at = clock()
    await asyncio.gather(*(complete_tokens(engine, prompt, num_output) for prompt, num_output in requests))
    return clock() - started_at
