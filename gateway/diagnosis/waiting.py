"""Findings for queues: too few permits, a full engine, one tenant, or more demand than the lane admits."""

from __future__ import annotations

from gateway.diagnosis.budget import LatencyBudget
from gateway.diagnosis.compare import compare_tenants
from gateway.diagnosis.finding import Finding, FindingEvidence
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.window import ObservedDeployment, Window

_GREEDY_RATIO = 0.7
_FULL_RATIO = 0.9
_SOME_WAIT_S = 0.02


def explain_waiting(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding:
    """Return the finding for a queue that grew."""
    waits = (
        FindingEvidence("wait for a permit, mean", now.wait_s, before.wait_s, "baseline"),
        FindingEvidence("wait in the engine's queue, mean", now.engine_queue_s, before.engine_queue_s, "baseline"),
        FindingEvidence("refused for load", _shed_ratio(window), 0.0, "bound", "ratio"),
    )
    place = place.at(_held_up(window, place.deployment))
    greedy = _greedy_tenant(window)
    if greedy is not None:
        return _one_tenant(greedy, waits)
    state = window.peak_state(place.deployment)
    if is_full(window, place.deployment, state, now):
        return _engine_full(place, state, waits)
    if _has_no_permits(state):
        return _limit(place, state, waits)
    return Finding(
        stage="queue",
        cause="admission",
        summary=f"Lane {place.lane or 'default'} has more demand than it is given.",
        evidence=waits,
        lever="Take an earlier step of the ladder, or give the lane more weight.",
        policy_path=place.lane_path("on_overload"),
    )


def _held_up(window: Window, default: str) -> str:
    """Return the deployment at which most requests wait, or else one that has no free permits in some snapshot."""
    found = {}
    for name in sorted(window.last.deployments):
        states = window.states(name)
        num_waiting, num_full = sum(state.num_waiting for state in states), sum(map(_has_no_permits, states))
        if num_waiting or num_full:
            found[name] = (num_waiting, num_full, window.peak_state(name).in_flight)
    return max(found, key=lambda name: found[name], default=window.member(default))


def _has_no_permits(state: ObservedDeployment) -> bool:
    return state.in_flight > 0 and state.in_flight >= _FULL_RATIO * state.limit


def is_full(window: Window, deployment: str, state: ObservedDeployment, now: LatencyBudget) -> bool:
    """Return whether the engine is full: its rows are taken, or sequences wait inside it."""
    waiting = max(
        (
            snapshot.engines[deployment].number("engine_waiting")
            for snapshot in window.all
            if deployment in snapshot.engines
        ),
        default=0.0,
    )
    seqs_taken = state.max_num_seqs > 0 and state.num_seqs >= _FULL_RATIO * state.max_num_seqs
    return seqs_taken or waiting > 0 or now.engine_queue_s > max(now.wait_s, _SOME_WAIT_S)


def _one_tenant(greedy: tuple[str, float, float], waits: tuple[FindingEvidence, ...]) -> Finding:
    name, share, before = greedy
    return Finding(
        stage="queue",
        cause="one_tenant",
        summary=f"Tenant {name} takes {share:.0%} of the tokens while others wait.",
        evidence=(FindingEvidence(f"tokens of tenant {name}", share, before, "baseline", "ratio"), *waits),
        lever="Bound the tenant: requests under way, or tokens a minute.",
        policy_path=f"tenants.{name}.limits.max_in_flight",
    )


def _engine_full(place: PolicyLines, state: ObservedDeployment, waits: tuple[FindingEvidence, ...]) -> Finding:
    return Finding(
        stage="queue",
        cause="engine_full",
        summary=f"Deployment {place.deployment} has no room for a sequence; requests wait.",
        evidence=(
            FindingEvidence("sequences", state.num_seqs, float(state.max_num_seqs) or None, "bound", "count"),
            *waits,
        ),
        lever="Add a replica, or more sequences per step (penstock engine --max-num-seqs) where its KV memory allows.",
        policy_path=place.route_path("select.candidates"),
    )


def _limit(place: PolicyLines, state: ObservedDeployment, waits: tuple[FindingEvidence, ...]) -> Finding:
    return Finding(
        stage="queue",
        cause="limit",
        summary=f"Deployment {place.deployment} has room, but its permits are all out.",
        evidence=(
            FindingEvidence("in flight", float(state.in_flight), state.limit, "bound", "count"),
            FindingEvidence("sequences", state.num_seqs, float(state.max_num_seqs) or None, "bound", "count"),
            *waits,
        ),
        lever="Raise the deployment's permits.",
        policy_path=place.deployment_path("limits.max_in_flight"),
    )


def _greedy_tenant(window: Window) -> tuple[str, float, float] | None:
    """Return a tenant that newly takes most of the tokens, its share and its earlier share, or None."""
    compared = compare_tenants(window)
    if len(compared) < 2 or compared[0].token_ratio < _GREEDY_RATIO:
        return None
    name = compared[0].key
    counters = ("penstock_prompt_tokens_total", "penstock_completion_tokens_total")
    total = sum(window.counted_before(counter) for counter in counters)
    mine = sum(window.counted_before(counter, tenant=name) for counter in counters)
    before = mine / total if total > 0 else 0.0
    return (name, compared[0].token_ratio, before) if before < _GREEDY_RATIO else None


def _shed_ratio(window: Window) -> float:
    num_requests = window.counted("penstock_requests_total")
    return window.counted("penstock_shed_total") / num_requests if num_requests > 0 else 0.0
