"""Diagnosis of one window: the gateway itself, then the first token, then the remaining tokens.

Each of the three yields at most one finding, so consequences of a cause are not listed beside it. A latency is late
when it misses the lane's target or exceeds 1.5 times its earlier value. The finding concerns the stage with the largest
growth, or the largest stage where no growth explains the latency. Failed requests and lost deployments come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.diagnosis.budget import LatencyBudget, budget_before, budget_now, first_tokens
from gateway.diagnosis.compare import compare_deployments, compare_prompts, compare_tenants
from gateway.diagnosis.decoding import explain_decode, find_longer_answers
from gateway.diagnosis.encoding import find_slow_encoder
from gateway.diagnosis.failing import FAILED_RATIO, failed_ratios, find_failing
from gateway.diagnosis.finding import Diagnosis, Finding, FindingEvidence, StageTime
from gateway.diagnosis.late import LEAST_PACE_S, LEAST_S, MIN_BASELINE, MIN_REQUESTS, is_late
from gateway.diagnosis.policy_lines import PolicyLines, latest, place_of
from gateway.diagnosis.prefilling import (
    KV_FULL_RATIO,
    explain_cold_start,
    explain_path,
    explain_prefill,
    explain_preprocessing,
)
from gateway.diagnosis.waiting import explain_waiting
from gateway.diagnosis.window import Window
from routing_policies.policy.document import Policy
from routing_policies.policy.members import group_of

_LATE_LOOP_RATIO: Final = 0.15
_SHED_RATIO: Final = 0.02
_EXPLAINED: Final = 0.3
_MISSED_RATIO: Final = 0.05
"""Share of answers that may miss a target, which is a 95th percentile."""


def find_cause(window: Window, policy: Policy) -> Diagnosis:
    """Return the slow stages of the window, their causes, and the policy lines to change."""
    place = place_of(window, policy)
    now, before = budget_now(window), budget_before(window)
    findings = _findings(window, place, now, before)
    stages = _stage_times(now, before)
    return Diagnosis(
        seconds=window.seconds,
        num_requests=window.counted("penstock_requests_total"),
        findings=findings,
        conclusion="" if findings else _conclusion(window, place, stages, now, before),
        stages=stages,
        prompts=compare_prompts(window),
        deployments=compare_deployments(window),
        tenants=compare_tenants(window),
        notes=_notes(window, now, before, has_findings=bool(findings)),
    )


def _findings(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> tuple[Finding, ...]:
    if window.late_ratio >= _LATE_LOOP_RATIO and _reading_ratio(window) < window.late_ratio / 2:
        return (_late_loop(window),)  # every other latency includes the loop's delay
    lost, failed = _lost(window), failed_ratios(window)
    down = _down(place, lost, failed)
    failing = find_failing(window, place, {name: ratio for name, ratio in failed.items() if name not in lost})
    # Lost cache hits load the deployments, which are then late too; so the encoder is examined first.
    late_at = place.at(latest(window, "penstock_ttft_seconds", place.deployment))
    first = find_slow_encoder(window, place) or _late_first_token(window, late_at, now, before)
    if (down is not None or failing is not None) and first is not None and first.cause == "admission":
        first = None  # refused because no deployment serves, not because of the lane's share
    if down is not None and first is not None and first.cause == down.cause:
        first = None  # the same deployments
    found = [_store(window), down, failing, first]
    if _is_slow(window, place):
        found.append(explain_decode(window, place.at(latest(window, "penstock_tpot_seconds", place.deployment))))
    elif first is None:
        found.append(find_longer_answers(window, place) if _is_known(window) else None)
    return tuple(finding for finding in found if finding is not None)


def _is_known(window: Window) -> bool:
    """Return whether window and baseline hold enough answers to compare."""
    name = "penstock_total_seconds"
    return window.spread(name).count >= MIN_REQUESTS and window.spread_before(name).count >= MIN_BASELINE


# The gateway itself


def _late_loop(window: Window) -> Finding:
    return Finding(
        stage="gateway",
        cause="loop_lag",
        summary="The gateway's event loop is held up: everything it does is late.",
        evidence=(FindingEvidence("time the loop was late", window.late_ratio, _LATE_LOOP_RATIO, "bound", "ratio"),),
        lever="Give the gateway a core of its own, or run more gateway processes; see whether its machine swaps.",
    )


def _reading_ratio(window: Window) -> float:
    """Return the share of the window spent in reading and trimming, which delay the loop without being its fault."""
    name = "penstock_stage_seconds"
    return (window.spread(name, stage="read") + window.spread(name, stage="trim")).total / window.seconds


def _store(window: Window) -> Finding | None:
    failed = window.counted("penstock_store_failures_total")
    is_up = window.last.gateway.number("penstock_store_up")
    if is_up or not window.last.gateway.has("penstock_store_up"):
        return None
    return Finding(
        stage="gateway",
        cause="store",
        summary="The store cannot be used: each process enforces limits alone, and cached responses are not shared.",
        evidence=(
            FindingEvidence("store is up", is_up, 1.0, "bound", "count"),
            FindingEvidence("operations that failed", failed, 0.0, "bound", "count"),
        ),
        lever="See to the store; on_store_loss says what limits do meanwhile.",
        policy_path=next(
            (f"tenants.{name}.limits.on_store_loss" for name in sorted(_tenants(window)) if name != "other"), None
        ),
    )


def _tenants(window: Window) -> frozenset[str]:
    return window.last.gateway.values_of("penstock_prompt_tokens_total", "tenant")


def _lost(window: Window) -> tuple[str, ...]:
    """Return the deployments that served before and are not ready now, by name; operators' drains are not counted."""
    served = window.first.gateway.values_of("penstock_ttft_seconds", "deployment")
    states = window.last.deployments.items()
    ready = {group_of(key) for key, state in states if state.is_ready}
    missing = {group_of(key) for key, state in states if not (state.is_ready or state.is_draining)}
    return tuple(sorted(served & missing - ready))


def _down(place: PolicyLines, lost: Sequence[str], failed: Mapping[str, float]) -> Finding | None:
    """Return the finding for deployments that served before and are not ready now, or None."""
    if not lost:
        return None
    return Finding(
        stage="network",
        cause="deployment_down",
        summary=f"{', '.join(lost)} served before and does not answer its probe now.",
        evidence=(
            FindingEvidence("deployments not ready", float(len(lost)), 0.0, "bound", "count"),
            *(
                FindingEvidence(f"failed at {name}", failed[name], FAILED_RATIO, "bound", "ratio")
                for name in lost
                if name in failed
            ),
        ),
        lever="See its own /readyz and log; a fallback keeps its routes served meanwhile.",
        policy_path=place.at(lost[0]).route_path("select.fallback"),
    )


# The first token


def _late_first_token(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding | None:
    num_all = window.counted("penstock_requests_total")
    sheds = num_all >= MIN_REQUESTS and window.counted("penstock_shed_total") / num_all > _SHED_RATIO
    are_late = is_late(first_tokens(window.spread), first_tokens(window.spread_before), place.ttft_target_s, LEAST_S)
    if not (are_late or sheds):
        return None
    if window.restarted():
        return explain_cold_start(window, place, now, before)
    _, used = window.engine_peak("engine_kv_utilization")
    is_kv_short = used >= KV_FULL_RATIO and now.engine_queue_s > before.engine_queue_s
    excess = _excess(now, before, is_kv_short=is_kv_short)
    stage = "queue" if not are_late else max(excess, key=lambda name: excess[name])
    if stage == "queue":
        return explain_waiting(window, place, now, before)
    if stage == "preprocessing":
        return explain_preprocessing(place, now, before)
    if stage == "prefill":
        return explain_prefill(window, place, now, before)
    return explain_path(window, place, now, before)


def _excess(now: LatencyBudget, before: LatencyBudget, *, is_kv_short: bool) -> dict[str, float]:
    """Return the growth of each stage in seconds, or its whole seconds where growth does not explain the latency."""
    here, past = _parts(now, is_kv_short=is_kv_short), _parts(before, is_kv_short=is_kv_short)
    if before.num_requests < MIN_BASELINE:
        return here
    grown = {name: here[name] - past[name] for name in here}
    return grown if sum(max(0.0, value) for value in grown.values()) >= _EXPLAINED * now.ttft_s else here


def _parts(budget: LatencyBudget, *, is_kv_short: bool) -> dict[str, float]:
    queue_s, prefill_s = budget.wait_s, budget.prefill_s
    if is_kv_short:  # a sequence that waits in an engine without free blocks waits for memory, not for earlier requests
        prefill_s += budget.engine_queue_s
    else:
        queue_s += budget.engine_queue_s
    return {
        "queue": queue_s,
        "preprocessing": budget.preprocessing_s,
        "prefill": prefill_s,
        "network": budget.path_s,
    }


def _is_slow(window: Window, place: PolicyLines) -> bool:
    name = "penstock_tpot_seconds"
    return is_late(window.spread(name), window.spread_before(name), place.tpot_target_s, LEAST_PACE_S)


# Beside the findings


def _conclusion(
    window: Window, place: PolicyLines, stages: Mapping[str, StageTime], now: LatencyBudget, before: LatencyBudget
) -> str:
    """Return what a window without findings rules out, and what it cannot tell."""
    if now.num_requests < MIN_REQUESTS:
        return f"It cannot tell: {now.num_requests:.0f} first tokens in {window.seconds:.0f} s are too few to compare."
    has_target, has_baseline = place.ttft_target_s is not None, before.num_requests >= MIN_BASELINE
    missed = _missed_ratio(window)
    if has_target and has_baseline and missed <= _MISSED_RATIO:
        return "Nothing stands out: everything is as it was, and within its targets."
    if missed > _MISSED_RATIO:
        slower = "Nothing is slower than before" if has_baseline else "There is no baseline yet"
        compared = f"{slower}, but {missed:.0%} of the latency targets were missed."
    elif has_target:
        compared = "Within the targets. There is no baseline yet, so it cannot tell whether anything became slower."
    elif has_baseline:
        compared = (
            "Nothing is slower than before. No lane in use has a target, so it cannot tell whether that is fast enough."
        )
    else:
        compared = "It cannot tell: no lane in use has a target, and there is no baseline yet."
    name = max(stages, key=lambda stage: stages[stage].now_s)
    with_upstream = ", the upstream's own time included" if name == "network" and not window.last.engines else ""
    time_ms = stages[name].now_s * 1000
    return f"{compared} The largest stage before the first token is {name}{with_upstream}: {time_ms:,.1f} ms."


def _missed_ratio(window: Window) -> float:
    """Return the share of the targets of answers that were missed; 0 without targets."""
    num_missed = window.counted("penstock_slo_total", result="missed")
    return num_missed / (num_missed + window.counted("penstock_slo_total", result="met")) if num_missed else 0.0


def _stage_times(now: LatencyBudget, before: LatencyBudget) -> dict[str, StageTime]:
    parts, past = _parts(now, is_kv_short=False), _parts(before, is_kv_short=False)
    times = {name: StageTime(parts[name], past[name]) for name in parts}
    return {**times, "gateway": StageTime(now.deciding_s, before.deciding_s)}


def _notes(window: Window, now: LatencyBudget, before: LatencyBudget, *, has_findings: bool) -> tuple[str, ...]:
    notes = []
    if has_findings and now.num_requests < MIN_REQUESTS:  # without findings the conclusion has it
        notes.append(f"{now.num_requests:.0f} first tokens in {window.seconds:.0f} s: too few to compare.")
    elif has_findings and before.num_requests < MIN_BASELINE:
        notes.append("There is no baseline yet: only the policy's targets are compared.")
    elif before.num_requests >= MIN_BASELINE and not window.is_baseline_apart:
        notes.append("The baseline reaches up to this window: what has lasted for most of it counts as usual.")
    silent = sorted(set(window.last.deployments) - set(window.last.engines))
    if silent:
        notes.append(f"No metrics from {', '.join(silent)}: their own stages are not known.")
    return tuple(notes)
