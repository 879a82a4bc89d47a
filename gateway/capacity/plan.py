"""Capacity plan: the steady state of one engine in closed form, and the bound that it meets first.

A request adds `output` decode rows' worth of steps and its uncached prompt. In the steady state, all work but the fixed
part is proportional to the step's length. Hence step = fixed / (1 - u), where u is the share of time that the requests'
work takes. The number of rows follows by Little's law: a request holds one for `output` steps.

Prompts form a queue of their own. They run one after another, in chunks as large as the engine allows beside decoding
rows. A prompt's chunks lengthen its own steps by their work. The wait in that queue (one server, equal prompts, Poisson
arrivals) has an exponential tail. The plan takes its 95th percentile, and adds the step under way and the prompt's own
steps. `penstock bench capacity` measures how well the plan holds.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from gateway.capacity.engine import EngineFigures

Unit = Literal["GPU", "core"]
"""Hardware of a replica, and the unit in which a plan counts it."""
Bound = Literal["ttft", "tpot", "num_seqs", "kv_memory", "step_tokens", "time"]

_LATE: Final = 0.05
"""Share of first tokens beyond the 95th percentile."""
_LEAST_CHUNK: Final = 8.0
_LEAST_SLOWDOWN: Final = 1.25
_LONG_PROMPT_TOKENS: Final = 1024
"""Length from which a prompt counts as long.

This and the two values above are the engine's: prompts advance however slow its steps are, and long ones hardly slow
down other sequences.
"""
_MOST_BUSY: Final = 0.98
_MAX_ITERATIONS: Final = 60
_HOURS_PER_DAY: Final = 24.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Load at the peak."""

    requests_per_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_hit_ratio: float = 0.0
    """Share of prompt tokens that the engine's prefix cache still holds."""
    cache_hit_ratio: float = 0.0
    """Share of requests that the gateway's cache answers."""
    mean_ratio: float = 0.5
    """Mean load over the day as a share of the peak."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Latency targets; None for no target."""

    ttft_p95_s: float | None = None
    tpot_s: float | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware of one replica."""

    unit: Unit = "GPU"
    units: float = 1.0
    """GPUs of a replica, or its cores."""
    kv_bytes_per_token: float | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Steady state of one replica."""

    requests_per_s: float
    busy_ratio: float
    step_s: float
    num_seqs: float
    kv_tokens: float
    ttft_p95_s: float


class CapacityPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Number of replicas for a demand, with the figures behind it."""

    replicas: int
    bound: Bound
    """Bound that limits a replica's capacity."""
    per_replica: State
    """State of a replica at its capacity."""
    at_peak: State
    """State of each replica at the peak."""
    engine_requests_per_s: float
    prompt_tokens_per_s: float
    computed_prompt_tokens_per_s: float
    output_tokens_per_s: float
    headroom_ratio: float
    """Share of a replica's capacity that is free at the peak."""
    kv_tokens_at_peak: float
    """Tokens in KV memory at the peak, over all replicas."""
    kv_bytes_at_peak: float | None
    unit: Unit
    units: float
    """GPUs or cores of all replicas."""
    unit_hours_per_day: float
    """Hours of GPUs or cores with all replicas all day."""
    unit_hours_per_day_scaled: float
    """Hours with replicas in proportion to the load, at least one."""


class Impossible(ValueError):
    """Error for targets that no number of replicas meets.

    The message names the bound and the latencies of an idle replica.
    """


def plan_capacity(
    demand: Demand, targets: Targets, engine: EngineFigures, hardware: Hardware, *, headroom_ratio: float = 0.3
) -> CapacityPlan:
    """Return the least number of replicas that keeps `headroom_ratio` of each free at the peak.

    Raises:
        Impossible: An idle replica already misses a target.
    """
    most, bound = _most(demand, targets, engine)
    uncached_per_s = demand.requests_per_s * (1.0 - demand.cache_hit_ratio)
    replicas = max(1, math.ceil(uncached_per_s / (most * (1.0 - headroom_ratio)) - 1e-9))
    at_peak = steady_state(uncached_per_s / replicas, demand, engine)
    scaled = max(1, math.ceil(replicas * demand.mean_ratio))
    kv_tokens = at_peak.kv_tokens * replicas
    return CapacityPlan(
        replicas=replicas,
        bound=bound,
        per_replica=steady_state(most, demand, engine),
        at_peak=at_peak,
        engine_requests_per_s=uncached_per_s,
        prompt_tokens_per_s=uncached_per_s * demand.prompt_tokens,
        computed_prompt_tokens_per_s=uncached_per_s * _uncached(demand),
        output_tokens_per_s=uncached_per_s * demand.output_tokens,
        headroom_ratio=1.0 - uncached_per_s / replicas / most,
        kv_tokens_at_peak=kv_tokens,
        kv_bytes_at_peak=None if hardware.kv_bytes_per_token is None else kv_tokens * hardware.kv_bytes_per_token,
        unit=hardware.unit,
        units=replicas * hardware.units,
        unit_hours_per_day=replicas * hardware.units * _HOURS_PER_DAY,
        unit_hours_per_day_scaled=scaled * hardware.units * _HOURS_PER_DAY,
    )


def steady_state(requests_per_s: float, demand: Demand, engine: EngineFigures) -> State:
    """Return the state of one replica at this rate; step and waits are infinite beyond its capacity."""
    busy = requests_per_s * work_s(demand, engine)
    if busy >= 1.0:
        return State(
            requests_per_s=requests_per_s,
            busy_ratio=busy,
            step_s=math.inf,
            num_seqs=math.inf,
            kv_tokens=math.inf,
            ttft_p95_s=math.inf,
        )
    step_s = engine.steps.fixed_s / (1.0 - busy)
    num_seqs = requests_per_s * demand.output_tokens * step_s
    return State(
        requests_per_s=requests_per_s,
        busy_ratio=busy,
        step_s=step_s,
        num_seqs=num_seqs,
        kv_tokens=num_seqs * (demand.prompt_tokens + demand.output_tokens / 2),
        ttft_p95_s=_ttft_p95_s(requests_per_s, num_seqs, step_s, demand, engine),
    )


def work_s(demand: Demand, engine: EngineFigures) -> float:
    """Return the seconds of steps that one request adds, fixed parts excluded."""
    steps, prompt = engine.steps, _uncached(demand)
    reach = demand.prompt_tokens - prompt / 2
    attended = demand.prompt_tokens + demand.output_tokens / 2
    decode_s = demand.output_tokens * (steps.row_s + steps.kv_token_s * attended)
    chunks = math.ceil(prompt / engine.step_tokens)
    return decode_s + prompt * (steps.prefill_token_s + steps.pair_s * reach) + chunks * steps.chunk_s


def _ttft_p95_s(requests_per_s: float, num_seqs: float, step_s: float, demand: Demand, engine: EngineFigures) -> float:
    """Return the 95th percentile of TTFT in seconds.

    It is the sum of the step under way, the wait for earlier prompts, and the prompt's own steps.
    """
    steps, prompt = engine.steps, _uncached(demand)
    alone_tokens = engine.step_tokens - num_seqs
    if alone_tokens <= 0:
        return math.inf
    positions = demand.prompt_tokens + demand.output_tokens / 2
    plain_s = steps.fixed_s + num_seqs * (steps.row_s + steps.kv_token_s * positions)
    chunk_s = plain_s + steps.chunk_s
    token_s = steps.prefill_token_s + steps.pair_s * (demand.prompt_tokens - prompt / 2)
    beside_tokens = min(alone_tokens, _tokens_beside_seqs(plain_s, token_s, demand, engine))
    alone = math.exp(-num_seqs)  # share of time in which no sequence decodes, so chunks may be whole steps
    full_s = prompt * (token_s + chunk_s * (alone / alone_tokens + (1.0 - alone) / beside_tokens))
    busy = requests_per_s * full_s
    if busy >= 1.0:
        return math.inf
    wait_s = max(0.0, math.log(busy / _LATE)) * full_s / (2.0 * (1.0 - busy)) if busy > 0 else 0.0
    num_steps = math.ceil(prompt / alone_tokens)
    if 1.0 - alone > _LATE:  # at the 95th percentile other sequences decode, until they end
        num_steps = min(math.ceil(prompt / beside_tokens), num_steps + demand.output_tokens)
    return step_s + wait_s + prompt * token_s + num_steps * chunk_s


def _tokens_beside_seqs(plain_s: float, token_s: float, demand: Demand, engine: EngineFigures) -> float:
    """Return the largest number of prompt tokens in a step in which other sequences decode."""
    if token_s <= 0:
        return math.inf
    is_long = demand.prompt_tokens > _LONG_PROMPT_TOKENS
    wanted_s = min(engine.itl_target_s, engine.prefill_slack_ratio * plain_s) if is_long else engine.itl_target_s
    return max(_LEAST_CHUNK, (max(wanted_s, _LEAST_SLOWDOWN * plain_s) - plain_s) / token_s)


def _uncached(demand: Demand) -> float:
    return max(1.0, demand.prompt_tokens * (1.0 - demand.prefix_hit_ratio))


def _most(demand: Demand, targets: Targets, engine: EngineFigures) -> tuple[float, Bound]:
    """Return the largest rate per second that one replica can take, and the bound that limits it.

    Raises:
        Impossible: An idle replica already misses a target.
    """
    idle = steady_state(0.0, demand, engine)
    broken = _broken(idle, demand, targets, engine)
    if broken is not None:
        raise Impossible(
            f"no number of replicas keeps this: an idle one already breaks {broken} (first token after "
            f"{idle.ttft_p95_s * 1000:.0f} ms, {idle.step_s * 1000:.1f} ms a token); shorter prompts or a faster engine"
        )
    low, high = 0.0, _MOST_BUSY / work_s(demand, engine)
    bound: Bound = "time"
    if _broken(steady_state(high, demand, engine), demand, targets, engine) is None:
        return high, bound
    for _ in range(_MAX_ITERATIONS):
        middle = (low + high) / 2
        broken = _broken(steady_state(middle, demand, engine), demand, targets, engine)
        if broken is None:
            low = middle
        else:
            high, bound = middle, broken
    return low, bound


def _broken(state: State, demand: Demand, targets: Targets, engine: EngineFigures) -> Bound | None:
    """Return the first bound that does not hold, or None."""
    limits: tuple[tuple[Bound, float, float | None], ...] = (
        ("tpot", state.step_s, targets.tpot_s),
        ("num_seqs", state.num_seqs, float(engine.max_num_seqs)),
        ("kv_memory", state.kv_tokens + demand.prompt_tokens + demand.output_tokens, float(engine.kv_tokens)),
        ("step_tokens", state.num_seqs, float(engine.step_tokens - 1)),
        ("ttft", state.ttft_p95_s, targets.ttft_p95_s),
    )
    return next((name for name, value, most in limits if most is not None and value > most), None)
