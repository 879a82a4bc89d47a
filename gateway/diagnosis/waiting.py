"""Findings for queues: few permits, a full engine, one tenant, no deployment that serves, or a lane's demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.diagnosis.budget import LatencyBudget
from gateway.diagnosis.compare import compare_tenants
from gateway.diagnosis.finding import Cause, Finding, FindingEvidence
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.window import ObservedDeployment, Snapshot, Window
from routing_policies.policy.members import group_of

_GREEDY_RATIO = 0.7
_FULL_RATIO = 0.9
_SOME_WAIT_S = 0.02


class _Hindrance(NamedTuple):
    """Words for a deployment that takes no requests, and the remedy."""

    state: str
    lever: str


_HINDRANCES: Final[Mapping[Cause, _Hindrance]] = {
    "deployment_down": _Hindrance(
        "is not ready", "See its own /readyz and log; a fallback keeps its routes served meanwhile."
    ),
    "backoff": _Hindrance(
        "is in the backoff that its server requested",
        "Raise that server's rate limit, or add a deployment or fallback.",
    ),
    "drained": _Hindrance("is drained", "End the drain, or add a deployment or fallback."),
}
"""Hindrances, the one to see to first before the others."""


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
    if (idle := _none_serves(window, place, waits)) is not None:
        return idle
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


def _none_serves(window: Window, place: PolicyLines, waits: tuple[FindingEvidence, ...]) -> Finding | None:
    """Return the finding for a route whose candidates took no requests in half of the snapshots; None for others."""
    by_snapshot = [_hindrances(snapshot, place.candidates) for snapshot in window.all]
    found = [hindrances for hindrances in by_snapshot if hindrances]
    if 2 * len(found) < len(by_snapshot):
        return None
    cause = min(found[-1].values(), key=list(_HINDRANCES).index)
    states = ", ".join(f"{name} {_HINDRANCES[one].state}" for name, one in sorted(found[-1].items()))
    return Finding(
        stage="network" if cause == "deployment_down" else "upstream",
        cause=cause,
        summary=f"No deployment of route {place.route or 'direct'} takes requests: {states}.",
        evidence=waits,
        lever=_HINDRANCES[cause].lever,
        policy_path=place.route_path("select.fallback"),
    )


def _hindrances(snapshot: Snapshot, candidates: frozenset[str]) -> dict[str, Cause]:
    """Return why each candidate takes no requests; empty if one of them does."""
    found: dict[str, Cause] = {}
    for name, state in snapshot.deployments.items():
        if group_of(name) not in candidates:
            continue
        if state.is_draining:
            found[name] = "drained"
        elif not state.is_ready:
            found[name] = "deployment_down"
        elif state.backoff_s > 0:
            found[name] = "backoff"
        else:
            return {}
    return found


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
