"""How many replicas a peak needs: the steady state of one engine as a closed form, and the first bound that it meets.

A request brings `output` decode rows' worth of steps and its uncached prompt. In the steady state all of a step's work
but its fixed part is in proportion to the step's own length, so that step = fixed / (1 - u) with u the share of time
that requests' work takes. Rows follow by Little's law (a request holds one for `output` steps).

Prompts are a queue of their own: one after the other, in chunks as large as the engine lets them be beside the rows
that decode. A prompt's chunks make its steps longer than the average one by their own work. Of that queue (one server,
equal prompts, Poisson arrivals) the wait has an exponential tail, of which the 95th percentile is taken; the step under
way and the prompt's own steps come on top. What this gives is a plan; `penstock bench capacity` measures its worth.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from gateway.capacity.engine import EngineFigures

Bound = Literal["ttft", "tpot", "rows", "kv_memory", "step_tokens", "time"]

_LATE: Final = 0.05
"""Of first tokens: those beyond the 95th percentile."""
_LEAST_CHUNK: Final = 8.0
_LEAST_SLOWDOWN: Final = 1.25
_LONG_PROMPT_TOKENS: Final = 1024
"""All three as the engine has them: prompts go on however slow its steps are, and long ones hardly show in others'."""
_MOST_BUSY: Final = 0.98
_ROUNDS: Final = 60
_HOURS_PER_DAY: Final = 24.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked at the peak."""

    requests_per_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_hit_ratio: float = 0.0
    """Of prompt tokens, those that the engine still holds."""
    cache_hit_ratio: float = 0.0
    """Of requests, those that the gateway answers itself."""
    mean_ratio: float = 0.5
    """Mean load over the day as a share of the peak."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What is promised; None is nothing."""

    ttft_p95_s: float | None = None
    tpot_s: float | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica takes."""

    gpus: float = 1.0
    kv_bytes_per_token: float | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One replica in its steady state."""

    requests_per_s: float
    busy_ratio: float
    step_s: float
    rows: float
    kv_tokens: float
    ttft_p95_s: float


class CapacityPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed."""

    replicas: int
    bound: Bound
    """What ends a replica's capacity first."""
    per_replica: State
    """At the most it can take."""
    at_peak: State
    """What each of `replicas` sees at the peak."""
    engine_requests_per_s: float
    prompt_tokens_per_s: float
    computed_prompt_tokens_per_s: float
    output_tokens_per_s: float
    headroom_ratio: float
    """Of a replica's capacity, what is left at the peak."""
    kv_tokens_at_peak: float
    """Over all replicas."""
    kv_bytes_at_peak: float | None
    gpus: float
    gpu_hours_per_day: float
    """With all replicas all day."""
    gpu_hours_per_day_scaled: float
    """With replicas in proportion to the load, one at least."""


class Impossible(ValueError):
    """No number of replicas keeps the targets; the message says which and what one replica alone would do."""


def plan_capacity(
    demand: Demand, targets: Targets, engine: EngineFigures, hardware: Hardware, *, headroom_ratio: float = 0.3
) -> CapacityPlan:
    """The least number of replicas that keeps `headroom_ratio` of each free at the peak. Raises Impossible."""
    most, bound = _most(demand, targets, engine)
    asked = demand.requests_per_s * (1.0 - demand.cache_hit_ratio)
    replicas = max(1, math.ceil(asked / (most * (1.0 - headroom_ratio)) - 1e-9))
    at_peak = steady_state(asked / replicas, demand, engine)
    scaled = max(1, math.ceil(replicas * demand.mean_ratio))
    kv_tokens = at_peak.kv_tokens * replicas
    return CapacityPlan(
        replicas=replicas,
        bound=bound,
        per_replica=steady_state(most, demand, engine),
        at_peak=at_peak,
        engine_requests_per_s=asked,
        prompt_tokens_per_s=asked * demand.prompt_tokens,
        computed_prompt_tokens_per_s=asked * _uncached(demand),
        output_tokens_per_s=asked * demand.output_tokens,
        headroom_ratio=1.0 - asked / replicas / most,
        kv_tokens_at_peak=kv_tokens,
        kv_bytes_at_peak=None if hardware.kv_bytes_per_token is None else kv_tokens * hardware.kv_bytes_per_token,
        gpus=replicas * hardware.gpus,
        gpu_hours_per_day=replicas * hardware.gpus * _HOURS_PER_DAY,
        gpu_hours_per_day_scaled=scaled * hardware.gpus * _HOURS_PER_DAY,
    )


def steady_state(requests_per_s: float, demand: Demand, engine: EngineFigures) -> State:
    """One replica under so many requests a second; with more than it can do its step and waits are infinite."""
    busy = requests_per_s * work_s(demand, engine)
    if busy >= 1.0:
        return State(
            requests_per_s=requests_per_s,
            busy_ratio=busy,
            step_s=math.inf,
            rows=math.inf,
            kv_tokens=math.inf,
            ttft_p95_s=math.inf,
        )
    step_s = engine.steps.fixed_s / (1.0 - busy)
    rows = requests_per_s * demand.output_tokens * step_s
    return State(
        requests_per_s=requests_per_s,
        busy_ratio=busy,
        step_s=step_s,
        rows=rows,
        kv_tokens=rows * (demand.prompt_tokens + demand.output_tokens / 2),
        ttft_p95_s=_ttft_p95_s(requests_per_s, rows, step_s, demand, engine),
    )


def work_s(demand: Demand, engine: EngineFigures) -> float:
    """Seconds of steps that one request adds, fixed parts left out."""
    steps, prompt = engine.steps, _uncached(demand)
    reach = demand.prompt_tokens - prompt / 2
    attended = demand.prompt_tokens + demand.output_tokens / 2
    decode_s = demand.output_tokens * (steps.row_s + steps.kv_token_s * attended)
    chunks = math.ceil(prompt / engine.step_tokens)
    return decode_s + prompt * (steps.prefill_token_s + steps.pair_s * reach) + chunks * steps.chunk_s


def _ttft_p95_s(requests_per_s: float, rows: float, step_s: float, demand: Demand, engine: EngineFigures) -> float:
    """The step under way, the prompts before this one, and its own steps."""
    steps, prompt = engine.steps, _uncached(demand)
    alone_tokens = engine.step_tokens - rows
    if alone_tokens <= 0:
        return math.inf
    positions = demand.prompt_tokens + demand.output_tokens / 2
    plain_s = steps.fixed_s + rows * (steps.row_s + steps.kv_token_s * positions)
    chunk_s = plain_s + steps.chunk_s
    token_s = steps.prefill_token_s + steps.pair_s * (demand.prompt_tokens - prompt / 2)
    beside_tokens = min(alone_tokens, _tokens_beside_rows(plain_s, token_s, demand, engine))
    alone = math.exp(-rows)  # of the time: nobody decodes, so nobody is held up by a chunk
    full_s = prompt * (token_s + chunk_s * (alone / alone_tokens + (1.0 - alone) / beside_tokens))
    busy = requests_per_s * full_s
    if busy >= 1.0:
        return math.inf
    wait_s = max(0.0, math.log(busy / _LATE)) * full_s / (2.0 * (1.0 - busy)) if busy > 0 else 0.0
    num_steps = math.ceil(prompt / alone_tokens)
    if 1.0 - alone > _LATE:  # rows that decode are there in more than the rarest cases, until they end
        num_steps = min(math.ceil(prompt / beside_tokens), num_steps + demand.output_tokens)
    return step_s + wait_s + prompt * token_s + num_steps * chunk_s


def _tokens_beside_rows(plain_s: float, token_s: float, demand: Demand, engine: EngineFigures) -> float:
    """Most prompt tokens in a step that others decode in."""
    if token_s <= 0:
        return math.inf
    is_long = demand.prompt_tokens > _LONG_PROMPT_TOKENS
    wanted_s = min(engine.itl_target_s, engine.prefill_slack_ratio * plain_s) if is_long else engine.itl_target_s
    return max(_LEAST_CHUNK, (max(wanted_s, _LEAST_SLOWDOWN * plain_s) - plain_s) / token_s)


def _uncached(demand: Demand) -> float:
    return max(1.0, demand.prompt_tokens * (1.0 - demand.prefix_hit_ratio))


def _most(demand: Demand, targets: Targets, engine: EngineFigures) -> tuple[float, Bound]:
    """Requests a second that one replica can take, and what keeps it from more. Raises Impossible."""
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
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        broken = _broken(steady_state(middle, demand, engine), demand, targets, engine)
        if broken is None:
            low = middle
        else:
            high, bound = middle, broken
    return low, bound


def _broken(state: State, demand: Demand, targets: Targets, engine: EngineFigures) -> Bound | None:
    """The first bound that does not hold."""
    limits: tuple[tuple[Bound, float, float | None], ...] = (
        ("tpot", state.step_s, targets.tpot_s),
        ("rows", state.rows, float(engine.max_rows)),
        ("kv_memory", state.kv_tokens + demand.prompt_tokens + demand.output_tokens, float(engine.kv_tokens)),
        ("step_tokens", state.rows, float(engine.step_tokens - 1)),
        ("ttft", state.ttft_p95_s, targets.ttft_p95_s),
    )
    return next((name for name, value, most in limits if most is not None and value > most), None)
