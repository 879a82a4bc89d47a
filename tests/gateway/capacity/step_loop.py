"""The engine's step loop in virtual time, with step times that are known: what a plan has to foretell."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass

from gateway.capacity.engine import EngineFigures
from gateway.capacity.plan import Demand

_LEAST_CHUNK, _LEAST_SLOWDOWN, _LONG_PROMPT_TOKENS = 8, 1.25, 1024


@dataclass(slots=True)
class Sequence:
    """One request; instants are seconds from the start."""

    came_at: float
    num_computed: int = 0
    num_made: int = 0
    first_at: float = 0.0
    ended_at: float = 0.0


def run_steps(requests_per_s: float, demand: Demand, engine: EngineFigures, *, num: int, seed: int) -> list[Sequence]:
    """So many Poisson arrivals, until the last has ended."""
    rng = random.Random(seed)
    now, at, coming = 0.0, 0.0, deque[Sequence]()
    for _ in range(num):
        at += rng.expovariate(requests_per_s)
        coming.append(Sequence(at))
    served, steps = list(coming), engine.steps
    prompts, num_seqs = list[Sequence](), list[Sequence]()
    while coming or prompts or num_seqs:
        while coming and coming[0].came_at <= now and len(prompts) + len(num_seqs) < engine.max_num_seqs:
            prompts.append(coming.popleft())
        if not (prompts or num_seqs):
            now = coming[0].came_at
            continue
        positions = sum(demand.prompt_tokens + row.num_made for row in num_seqs)
        plain_s = steps.fixed_s + len(num_seqs) * steps.row_s + positions * steps.kv_token_s
        room = engine.step_tokens - len(num_seqs)
        if num_seqs:
            room = min(room, _beside(plain_s, demand, engine))
        took_s = plain_s
        for prompt in prompts:
            chunk = min(room, demand.prompt_tokens - prompt.num_computed)
            prompt.num_computed += chunk
            room -= chunk
            took_s += chunk * steps.prefill_token_s
        now += took_s
        for row in num_seqs:
            row.num_made += 1
        for prompt in (one for one in prompts if one.num_computed == demand.prompt_tokens):
            prompt.first_at, prompt.num_made = now, 1
            num_seqs.append(prompt)
        prompts = [one for one in prompts if one.num_computed < demand.prompt_tokens]
        for row in (one for one in num_seqs if one.num_made == demand.output_tokens):
            row.ended_at = now
        num_seqs = [one for one in num_seqs if one.num_made < demand.output_tokens]
    return served


def ttft_p95_s(served: list[Sequence]) -> float:
    """Of all but the first tenth, which came to an empty engine."""
    found = sorted(one.first_at - one.came_at for one in served[len(served) // 10 :])
    return found[math.ceil(0.95 * len(found)) - 1]


def mean_tpot_s(served: list[Sequence]) -> float:
    """Over requests."""
    return sum((one.ended_at - one.first_at) / (one.num_made - 1) for one in served) / len(served)


def _beside(plain_s: float, demand: Demand, engine: EngineFigures) -> int:
    is_long = demand.prompt_tokens > _LONG_PROMPT_TOKENS
    slowest_s = min(engine.itl_target_s, engine.prefill_slack_ratio * plain_s) if is_long else engine.itl_target_s
    return max(_LEAST_CHUNK, int((max(slowest_s, _LEAST_SLOWDOWN * plain_s) - plain_s) / engine.steps.prefill_token_s))
