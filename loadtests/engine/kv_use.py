"""KV use: how much of a pool that is too small for its load holds live tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import median

from loadtests.clients.completions import complete_tokens
from loadtests.clients.engine_probe import EngineLoad, read_load
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Finding, Prompts, Setting
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import metric, start_engine

_NUM_BLOCKS = 640
_BLOCK_SIZE = 16
_MAX_ROWS = 64
_PROMPT_TOKENS, _OUTPUT_TOKENS = (32, 256), (64, 512)
"""Uniform between these: 432 tokens on average, most of them made here, so that the pool fills before the rows do."""
_MAX_FREE_RATIO = 0.02
"""With less than this free the pool is full: no sequence of usual length fits in."""
_MIN_REQUESTS = 96
_INTERVAL_S = 0.02
_MIN_FULL_READINGS = 24
"""So many make a median; the load goes on for them, however little time it was given."""
_LONGEST_S = 90.0
"""Then it ends all the same: a machine that never fills its pool reports it with null."""


async def measure_kv_use(setting: Setting) -> Finding:
    """Live tokens over the pool's positions, at the moments when requests wait and hardly a block is free."""
    prompts = Prompts(setting.model, setting.seed)
    async with Workbench() as bench:
        flags = ("--num-blocks", str(_NUM_BLOCKS), "--max-num-seqs", str(_MAX_ROWS), "--speculation", "off")
        engine = (await start_engine(bench, setting.model, *setting.flags(*flags))).address
        readings = await _readings_under_load(engine, prompts, setting.seconds)
        preemptions = await metric(engine, "engine_preemptions_total")
    short = [load for load in readings if load.num_waiting and load.num_running < _MAX_ROWS]
    full = [load for load in short if _is_full(load)]
    return Finding(
        results={
            "kv_use": _median_use(full),
            "kv_use_while_waiting": _median_use(short),
            "kv_full_readings": len(full),
            "kv_waiting_readings": len(short),
            "kv_preemptions": int(preemptions),
            "kv_mean_tokens": (sum(_PROMPT_TOKENS) + sum(_OUTPUT_TOKENS)) / 2,
        },
        notes=[
            f"kv: live tokens over {_NUM_BLOCKS * _BLOCK_SIZE} positions, median of the {len(full)} readings with at "
            f"most {_MAX_FREE_RATIO:.0%} of the blocks free, out of {len(short)} in which requests waited for blocks",
            f"kv: prompts of {_PROMPT_TOKENS} and outputs of {_OUTPUT_TOKENS} tokens, uniform, {2 * _MAX_ROWS} clients",
        ],
    )


def _is_full(load: EngineLoad) -> bool:
    """Whether requests wait for blocks, and hardly one is free."""
    is_short = load.num_waiting > 0 and load.num_running < _MAX_ROWS
    return is_short and load.num_blocks_free <= _MAX_FREE_RATIO * load.num_blocks_total


def _median_use(loads: Sequence[EngineLoad]) -> float | None:
    """None of no readings: then nothing was found out."""
    if not loads:
        return None
    return median(load.num_kv_tokens / (load.num_blocks_total * _BLOCK_SIZE) for load in loads)


async def _readings_under_load(engine: Address, prompts: Prompts, seconds: float) -> list[EngineLoad]:
    """The load every few milliseconds while more requests are in flight than the pool can hold."""
    begun_at = clock()
    num_sent = num_full = 0

    def is_over() -> bool:
        spent_s = clock() - begun_at
        return spent_s >= seconds and (num_full >= _MIN_FULL_READINGS or spent_s >= _LONGEST_S)

    async def client() -> None:
        nonlocal num_sent
        while not is_over() or num_sent < _MIN_REQUESTS:
            num_sent += 1
            num_prompt, num_output = prompts.rng.randint(*_PROMPT_TOKENS), prompts.rng.randint(*_OUTPUT_TOKENS)
            await complete_tokens(engine, prompts.of(num_prompt), num_output)

    readings: list[EngineLoad] = []
    load = asyncio.gather(*(client() for _ in range(2 * _MAX_ROWS)))
    try:
        while not load.done() and (not is_over() or not readings):
            readings.append(await read_load(engine))
            num_full += _is_full(readings[-1])
            await asyncio.sleep(_INTERVAL_S)
        await load
    finally:
        load.cancel()
    return readings
