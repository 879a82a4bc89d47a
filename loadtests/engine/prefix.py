"""Prefix caching: what a shared prefix saves, how often it is computed, and what the cache costs where nothing hits."""

from __future__ import annotations

import asyncio
from functools import partial
from statistics import fmean, median

from loadtests.clients.completions import complete_tokens, stream_tokens
from loadtests.clients.http_client import Address
from loadtests.engine.part import Finding, Prompts, Results, Setting
from loadtests.engine.repeats import Repeats
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import metric, start_engine

_SHARED_TOKENS = 2000
_OWN_TOKENS = 16
_BURST = 100
_MIN_BURST = 10
_SHORT_S = 10.0
"""Below so much time the burst is smaller; the JSON line states how large it was."""
_MISS_PROMPT_TOKENS, _MISS_OUTPUT_TOKENS = 256, 8
_MISS_SHARE = 0.6
_MISS_STARTS = 3
"""Two engines that do the same may differ by some hundredths for as long as they live."""


async def measure_prefix(setting: Setting) -> Finding:
    """A system prompt of 2,000 tokens, first token cold and cached; a burst sharing it; prompts sharing nothing."""
    num_requests = _BURST if setting.seconds >= _SHORT_S else _MIN_BURST
    hits, notes = await _measure_hits(setting, setting.seconds * (1 - _MISS_SHARE), num_requests)
    misses, more = await _measure_misses(setting, setting.seconds * _MISS_SHARE)
    return Finding(results=hits | misses, notes=notes + more)


async def _measure_hits(setting: Setting, seconds: float, num_requests: int) -> tuple[Results, list[str]]:
    prompts = Prompts(setting.model, setting.seed)
    async with Workbench() as bench:
        engine = (await start_engine(bench, setting.model, *setting.flags())).address
        shared = prompts.of(_SHARED_TOKENS)
        await _ttft_s(engine, shared, "warm")
        num_cold = 0

        async def cold() -> float:
            nonlocal num_cold
            num_cold += 1
            return await _ttft_s(engine, shared + prompts.of(_OWN_TOKENS), f"cold{num_cold}")

        async def warm() -> float:
            return await _ttft_s(engine, shared + prompts.of(_OWN_TOKENS), "warm")

        repeats = await Repeats({"cold": cold, "cached": warm}).run(seconds / 2, at_least=5)
        computed = await _computed_times(engine, prompts, shared, num_requests)
    ratio = repeats.median("cold") / repeats.median("cached")
    return {
        "prefix_ttft_ratio": ratio,
        "prefix_computed_ratio": computed,
        "prefix_cold_ttft_p50_ms": 1e3 * repeats.median("cold"),
        "prefix_cached_ttft_p50_ms": 1e3 * repeats.median("cached"),
        "prefix_requests": num_requests,
    }, [
        f"prefix: first token behind {_SHARED_TOKENS} shared tokens, p50 cold over cached, {repeats.num_repeats} each",
        f"prefix: the shared tokens were computed {computed:.3f} times by a burst of {num_requests} requests at once",
    ]


async def _computed_times(engine: Address, prompts: Prompts, shared: list[int], num_requests: int) -> float:
    """How often a burst of requests computes their common prefix, from the engine's count of cached tokens."""
    name = "engine_prefix_cache_hits_tokens_total"
    before = await metric(engine, name)
    burst = [shared + prompts.of(_OWN_TOKENS) for _ in range(num_requests)]
    await asyncio.gather(*(stream_tokens(engine, prompt, 4, headers=_salt("burst")) for prompt in burst))
    return (num_requests * _SHARED_TOKENS - (await metric(engine, name) - before)) / _SHARED_TOKENS


async def _measure_misses(setting: Setting, seconds: float) -> tuple[Results, list[str]]:
    prompts = Prompts(setting.model, setting.seed + 1)
    starts = [await _measure_start(setting, prompts, seconds / _MISS_STARTS) for _ in range(_MISS_STARTS)]
    ratios = [repeats.ratio("on", "off") for repeats in starts]
    num_pairs = sum(repeats.num_repeats for repeats in starts)
    medians = [median(value for repeats in starts for value in repeats.found[name]) for name in ("on", "off")]
    return {"prefix_miss_cost_ratio": fmean(ratios), "prefix_miss_pairs": num_pairs}, [
        f"prefix misses: engine time of {_MISS_PROMPT_TOKENS} + {_MISS_OUTPUT_TOKENS} tokens, cache on over off, "
        f"{num_pairs} pairs in turn; medians {1e3 * medians[0]:.2f} and {1e3 * medians[1]:.2f} ms",
        "prefix misses: mean over starts of both engines, of the median of each: "
        + ", ".join(f"{ratio:.3f}" for ratio in ratios),
    ]


async def _measure_start(setting: Setting, prompts: Prompts, seconds: float) -> Repeats:
    """Engine time of prompts that share nothing, of two engines that are started for it."""
    async with Workbench() as bench:
        engines = {
            name: (await start_engine(bench, setting.model, *setting.flags(flag), name=name)).address
            for name, flag in (("on", "--enable-prefix-cache"), ("off", "--no-enable-prefix-cache"))
        }

        async def spent_s(name: str) -> float:
            prompt = prompts.of(_MISS_PROMPT_TOKENS)
            answer = await complete_tokens(engines[name], prompt, _MISS_OUTPUT_TOKENS)
            assert not answer.num_cached_tokens, "random prompts share nothing"
            return answer.engine_s

        sides = {name: partial(spent_s, name) for name in engines}
        await Repeats(sides).run_once()
        return await Repeats(sides).run(seconds, at_least=5)


async def _ttft_s(engine: Address, prompt: list[int], salt: str) -> float:
    return (await stream_tokens(engine, prompt, 1, headers=_salt(salt))).ttft_s


def _salt(name: str) -> tuple[tuple[str, str], ...]:
    return (("x-penstock-cache-salt", name),)
