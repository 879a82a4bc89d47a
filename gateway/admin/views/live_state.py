"""LiveState: lanes and deployments of one process as they are at this moment, in a form that travels and adds up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from gateway.admin.views.group_state import GroupState, worst_of
from gateway.deployments.live import LiveDeployment
from gateway.limits.lane import LiveLane
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.logs.log import clean
from routing_policies.policy.deployment import CostPerMtok, Deployment

T = TypeVar("T", "LaneState", "DeploymentState", GroupState)

FORECAST_PROMPTS: tuple[tuple[str, int], ...] = (("0-256", 128), ("256-1k", 640), ("1k-4k", 2560))
"""Prompt buckets and the uncached tokens whose time to first token is forecast for each."""


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """One lane over all deployments."""

    id: str
    weight: float
    waiting: int
    max_queue: int
    predicted_wait_s: float
    drained_per_s: float | None
    ttft_slo_ms: float | None
    tpot_slo_ms: float | None
    on_overload: tuple[str, ...]


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's last load report; every field is None for servers without a load feed."""

    state: str
    running: int
    waiting: int
    max_num_seqs: int
    step_ms: float
    tokens_per_s: float
    kv_total: int
    kv_free: int
    kv_cached: int


class DeploymentState(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment as this process sees it."""

    id: str
    model: str
    description: str = ""
    """Knowledge and limits of the model, as the policy states them."""
    url: str
    zone: str | None
    is_ready: bool
    is_draining: bool
    has_left: bool = False
    """True if its source no longer lists it, and it finishes its requests."""
    warm_up_share: float = 1.0
    """Share of what an old member of its group gets."""
    is_warming: bool
    is_ejected: bool
    in_flight: int
    limit: int
    waiting: int
    forecast_ttft_ms: dict[str, float]
    """Forecast TTFT of a prompt that would arrive now, by bucket."""
    forecast_tpot_ms: float
    forecast_error_p50: float | None
    forecast_error_p90: float | None
    cache_trust: float
    cost_per_mtok: CostPerMtok | None
    report: EngineReport | None


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The live state of one process."""

    lanes: tuple[LaneState, ...] = ()
    deployments: tuple[DeploymentState, ...] = ()
    groups: tuple[GroupState, ...] = ()
    """Deployments with members that come and go."""
    cache_entries: int = 0
    cache_bytes: int = 0
    num_routes: int = 0
    """Number of the policy's routes."""
    routes_without_cache: tuple[str, ...] = ()


def live_state(
    snapshot: PolicySnapshot | None,
    now: float,
    *,
    cache_entries: int,
    cache_bytes: int,
    departing: Iterable[LiveDeployment] = (),
    groups: tuple[GroupState, ...] = (),
) -> LiveState:
    """Return the live state at monotonic time `now`, with the members that drain."""
    if snapshot is None:
        return LiveState(cache_entries=cache_entries, cache_bytes=cache_bytes)
    rules = {rule.id: rule for rule in snapshot.policy.deployments}
    return LiveState(
        lanes=tuple(_lane(lane, now) for lane in snapshot.lanes.values()),
        deployments=tuple(
            _deployment(live, now, rules.get(live.id)) for live in (*snapshot.deployments.values(), *departing)
        ),
        groups=groups,
        cache_entries=cache_entries,
        cache_bytes=cache_bytes,
        num_routes=len(snapshot.policy.routes),
        routes_without_cache=tuple(route.id for route in snapshot.policy.routes if route.cache.mode == "off"),
    )


def added(states: Sequence[LiveState]) -> LiveState:
    """Combine the states of all processes: counts add up, and of a value that can only be one the worst is taken.

    A process with an older revision does not count what is new to it; the others do.
    """
    return LiveState(
        lanes=tuple(_add_lanes(same) for same in _grouped(lane for state in states for lane in state.lanes)),
        deployments=tuple(_add_deployments(same) for same in _grouped(one for s in states for one in s.deployments)),
        groups=tuple(worst_of(same) for same in _grouped(one for state in states for one in state.groups)),
        cache_entries=max((state.cache_entries for state in states), default=0),
        cache_bytes=sum(state.cache_bytes for state in states),
        num_routes=states[0].num_routes if states else 0,
        routes_without_cache=states[0].routes_without_cache if states else (),
    )


def of_machine(own: LiveState, workers: Sequence[LiveState]) -> LiveState:
    """Return the live state of a machine, whose workers forecast and whose control process sees all permits.

    Permits, queues and their limits in `own` are those of all processes; the worst forecast of the workers is taken.
    """
    if not workers:
        return own
    lanes = {same[0].id: same for same in _grouped(lane for state in workers for lane in state.lanes)}
    deployments = {same[0].id: same for same in _grouped(one for state in workers for one in state.deployments)}
    return msgspec.structs.replace(
        own,
        lanes=tuple(_lane_of_machine(lane, lanes.get(lane.id, ())) for lane in own.lanes),
        deployments=tuple(_deployment_of_machine(one, deployments.get(one.id, ())) for one in own.deployments),
    )


def _lane_of_machine(own: LaneState, workers: Sequence[LaneState]) -> LaneState:
    rates = [state.drained_per_s for state in workers if state.drained_per_s is not None]
    return msgspec.structs.replace(
        own,
        predicted_wait_s=max((state.predicted_wait_s for state in workers), default=own.predicted_wait_s),
        drained_per_s=sum(rates) if rates else None,
    )


def _deployment_of_machine(own: DeploymentState, workers: Sequence[DeploymentState]) -> DeploymentState:
    if not workers:
        return own
    slowest = max(workers, key=lambda state: sum(state.forecast_ttft_ms.values()))
    return msgspec.structs.replace(
        own,
        is_warming=own.is_warming or any(state.is_warming for state in workers),
        is_ejected=all(state.is_ejected for state in workers),
        forecast_ttft_ms=slowest.forecast_ttft_ms,
        forecast_tpot_ms=slowest.forecast_tpot_ms,
        cache_trust=slowest.cache_trust,
        forecast_error_p50=_worst(state.forecast_error_p50 for state in workers),
        forecast_error_p90=_worst(state.forecast_error_p90 for state in workers),
    )


def _lane(lane: LiveLane, now: float) -> LaneState:
    rules = lane.rules
    return LaneState(
        id=lane.id,
        weight=rules.weight,
        waiting=lane.total_waiting,
        max_queue=lane.max_queue,
        predicted_wait_s=lane.predicted_wait_s(now) if lane.num_waiting else 0.0,
        drained_per_s=lane.drained.per_s(now),
        ttft_slo_ms=None if rules.ttft_slo_s is None else rules.ttft_slo_s * 1000,
        tpot_slo_ms=None if rules.tpot_slo_s is None else rules.tpot_slo_s * 1000,
        on_overload=tuple(rules.on_overload),
    )


def _deployment(live: LiveDeployment, now: float, rule: Deployment | None) -> DeploymentState:
    forecast = live.forecast
    return DeploymentState(
        id=live.id,
        model=live.model,
        description=live.description,
        url=clean(live.url),
        zone=None if rule is None else rule.zone,
        is_ready=live.is_ready,
        is_draining=live.is_draining,
        has_left=live.has_left,
        warm_up_share=live.warm_up_share(now),
        is_warming=forecast.is_warming or live.ready_in_s(now) is not None,
        is_ejected=live.health.is_ejected(now),
        in_flight=live.limiter.in_flight,
        limit=live.limiter.limit,
        waiting=live.limiter.num_waiting,
        forecast_ttft_ms={name: forecast.ttft_s(now, tokens) * 1000 for name, tokens in FORECAST_PROMPTS},
        forecast_tpot_ms=forecast.tpot_s(now) * 1000,
        forecast_error_p50=forecast.error.quantile(0.5),
        forecast_error_p90=forecast.error.quantile(0.9),
        cache_trust=forecast.cache_trust,
        cost_per_mtok=None if rule is None else rule.cost_per_mtok,
        report=_report(live, now),
    )


def _report(live: LiveDeployment, now: float) -> EngineReport | None:
    reported = live.forecast.report(now)
    if reported is None:
        return None
    return EngineReport(
        state=reported.state[:40],
        running=reported.num_running,
        waiting=reported.num_waiting,
        max_num_seqs=reported.max_num_seqs,
        step_ms=reported.step_s * 1000,
        tokens_per_s=reported.drain_tokens_per_s,
        kv_total=reported.num_blocks_total,
        kv_free=reported.num_blocks_free,
        kv_cached=reported.num_blocks_cached,
    )


def _add_lanes(states: Sequence[LaneState]) -> LaneState:
    rates = [state.drained_per_s for state in states if state.drained_per_s is not None]
    return msgspec.structs.replace(
        states[0],
        waiting=sum(state.waiting for state in states),
        max_queue=sum(state.max_queue for state in states),
        predicted_wait_s=max(state.predicted_wait_s for state in states),
        drained_per_s=sum(rates) if rates else None,
    )


def _add_deployments(states: Sequence[DeploymentState]) -> DeploymentState:
    """Combine one deployment's states: permits add up; all processes see the same engine."""
    return msgspec.structs.replace(
        states[0],
        is_ready=any(state.is_ready for state in states),
        is_draining=any(state.is_draining for state in states),
        has_left=all(state.has_left for state in states),
        warm_up_share=min(state.warm_up_share for state in states),
        is_ejected=all(state.is_ejected for state in states),
        in_flight=sum(state.in_flight for state in states),
        limit=sum(state.limit for state in states),
        waiting=sum(state.waiting for state in states),
        forecast_error_p50=_worst(state.forecast_error_p50 for state in states),
        forecast_error_p90=_worst(state.forecast_error_p90 for state in states),
        report=next((state.report for state in states if state.report is not None), None),
    )


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _grouped(items: Iterable[T]) -> list[list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(item.id, []).append(item)
    return list(groups.values())
