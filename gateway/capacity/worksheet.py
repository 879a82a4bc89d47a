"""Worksheet of a capacity plan for people: inputs, results and the measured figures."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.capacity.engine import EngineFigures
from gateway.capacity.plan import CapacityPlan, Demand, State, Targets

_BOUNDS = {
    "ttft": "the target for the first token",
    "tpot": "the target for each output token",
    "num_seqs": "the sequences of a step (penstock engine --max-num-seqs)",
    "kv_memory": "the KV memory (penstock engine --kv-memory-bytes, --kv-dtype int8)",
    "step_tokens": "the step's token budget (penstock engine --max-num-batched-tokens)",
    "time": "the time its steps take",
}


def render_plan(found: CapacityPlan, demand: Demand, targets: Targets, engine: EngineFigures) -> str:
    """Return the plan as lines of text, each value with its unit."""
    return "\n".join(_lines(found, demand, targets, engine))


def _lines(found: CapacityPlan, demand: Demand, targets: Targets, engine: EngineFigures) -> Iterator[str]:
    yield "demand at the peak"
    yield f"  requests                      {demand.requests_per_s:>12,.1f} /s"
    yield f"  answered by the cache         {demand.cache_hit_ratio:>12.0%}"
    yield f"  requests for engines          {found.engine_requests_per_s:>12,.1f} /s"
    held, computed = demand.prefix_hit_ratio, found.computed_prompt_tokens_per_s
    yield f"  prompt                        {demand.prompt_tokens:>12,} tokens, {held:.0%} still held"
    yield f"  answer                        {demand.output_tokens:>12,} tokens"
    yield f"  prompt tokens                 {found.prompt_tokens_per_s:>12,.0f} /s, {computed:,.0f} computed"
    yield f"  output tokens                 {found.output_tokens_per_s:>12,.0f} /s"
    yield "one replica, as measured"
    yield f"  a step                        {engine.steps.fixed_s * 1e3:>12.3f} ms, and"
    yield f"    for each sequence           {engine.steps.row_s * 1e3:>12.3f} ms"
    yield f"    for 1,000 prompt tokens     {engine.steps.prefill_token_s * 1e6:>12.3f} ms"
    yield f"    for 1,000,000 positions     {engine.steps.kv_token_s * 1e9:>12.3f} ms"
    room = f"{engine.step_tokens:,} and {engine.kv_tokens:,} tokens"
    yield f"  sequences, tokens a step, KV  {engine.max_num_seqs:>12,}, {room}"
    yield f"one replica, at most ({_BOUNDS[found.bound]})"
    yield from _state(found.per_replica, targets)
    yield "plan"
    yield f"  replicas                      {found.replicas:>12,}"
    yield f"  free at the peak              {found.headroom_ratio:>12.0%} of each"
    memory = "" if found.kv_bytes_at_peak is None else f", {found.kv_bytes_at_peak / 1e9:,.1f} GB"
    yield f"  KV memory in use at the peak  {found.kv_tokens_at_peak:>12,.0f} tokens{memory}"
    yield f"  {f'{found.unit}s':<30}{found.units:>12,.1f}"
    scaled = f"{found.unit_hours_per_day_scaled:,.0f} when scaled with the load"
    yield f"  {f'{found.unit} hours a day':<30}{found.unit_hours_per_day:>12,.0f}, {scaled}"
    yield "each of them at the peak"
    yield from _state(found.at_peak, targets)


def _state(state: State, targets: Targets) -> Iterator[str]:
    ttft = "" if targets.ttft_p95_s is None else f"   (target {targets.ttft_p95_s * 1000:,.0f})"
    tpot = "" if targets.tpot_s is None else f"   (target {targets.tpot_s * 1000:,.0f})"
    yield f"  requests                      {state.requests_per_s:>12,.2f} /s"
    yield f"  busy                          {state.busy_ratio:>12.0%}"
    yield f"  sequences                     {state.num_seqs:>12,.1f}"
    yield f"  time to first token, p95      {state.ttft_p95_s * 1000:>12,.0f} ms{ttft}"
    yield f"  time per output token         {state.step_s * 1000:>12,.1f} ms{tpot}"
