"""Findings for slow output tokens, and for answers that take long at an unchanged pace."""

from __future__ import annotations

from collections.abc import Callable

from gateway.diagnosis.finding import Finding, FindingEvidence
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.samples import Distribution
from gateway.diagnosis.window import ObservedDeployment, Window

_PREEMPTED_RATIO = 0.05
_FEW_ACCEPTED = 0.3
_MANY_DRAFTS = 0.5
_BUSY_RATIO = 0.7
_LONGER = 1.5


def explain_decode(window: Window, place: PolicyLines) -> Finding:
    """Return the finding for slow output tokens."""
    now, before = window.spread("penstock_tpot_seconds"), window.spread_before("penstock_tpot_seconds")
    pace = FindingEvidence("time per output token, mean", now.mean, before.mean, "baseline")
    engine, engine_before = (
        window.engine_spread("engine_tpot_seconds"),
        window.engine_spread_before("engine_tpot_seconds"),
    )
    if engine.count and now.mean - before.mean > 2.0 * max(0.0, engine.mean - engine_before.mean):
        return _slow_path(place, pace, engine, engine_before)
    preempted = window.engine_counted("engine_preemptions_total") / max(1.0, now.count)
    if preempted >= _PREEMPTED_RATIO:
        return _preemption(place, preempted, pace)
    drafted = window.engine_counted("engine_speculation_drafted_tokens_total")
    accepted = window.engine_counted("engine_speculation_accepted_tokens_total")
    made = window.engine_counted("engine_generation_tokens_total")
    if drafted > _MANY_DRAFTS * made and accepted < _FEW_ACCEPTED * drafted:
        return _speculation(accepted / drafted, pace)
    state = window.peak_state(window.member(place.deployment))
    if state.max_num_seqs and state.num_seqs >= _BUSY_RATIO * state.max_num_seqs:
        return _num_seqs(place, state, pace)
    return Finding(
        stage="decode",
        cause="slow_decode",
        summary="Output tokens take longer, with no more sequences than before.",
        evidence=(
            pace,
            FindingEvidence("sequences", state.num_seqs, float(state.max_num_seqs) or None, "bound", "count"),
        ),
        lever="Check what shares the engine's machine; else weights in int8 (--quantization int8) or a replica.",
        policy_path=place.route_path("select.candidates"),
    )


def find_longer_answers(window: Window, place: PolicyLines) -> Finding | None:
    """Return the finding for answers that take longer because they have more tokens, or None."""
    now, before = window.spread("penstock_total_seconds"), window.spread_before("penstock_total_seconds")
    tokens, tokens_before = _per_answer(window.counted, now), _per_answer(window.counted_before, before)
    if not tokens_before or tokens < _LONGER * tokens_before or now.mean < _LONGER * before.mean:
        return None
    return Finding(
        stage="decode",
        cause="output_length",
        summary="Answers take longer because they are longer; their pace is as it was.",
        evidence=(
            FindingEvidence("tokens of an answer", tokens, tokens_before, "baseline", "tokens"),
            FindingEvidence("whole answer, mean", now.mean, before.mean, "baseline"),
        ),
        lever="Have clients send max_tokens; under load the ladder's step max_tokens cuts answers.",
        policy_path=place.lane_path("degraded_max_tokens"),
    )


def _per_answer(counted: Callable[[str], float], answers: Distribution) -> float:
    return counted("penstock_completion_tokens_total") / answers.count if answers.count else 0.0


def _slow_path(place: PolicyLines, pace: FindingEvidence, engine: Distribution, before: Distribution) -> Finding:
    return Finding(
        stage="network",
        cause="path",
        summary=f"Output tokens leave {place.deployment} in time and reach the gateway late.",
        evidence=(pace, FindingEvidence("the engine's own, mean", engine.mean, before.mean, "baseline")),
        lever="Check the bandwidth between the two; prefer a nearer deployment (zone).",
        policy_path=place.route_path("select.candidates"),
    )


def _preemption(place: PolicyLines, preempted: float, pace: FindingEvidence) -> Finding:
    return Finding(
        stage="decode",
        cause="preemption",
        summary="Sequences are thrown out of the KV memory in mid-answer and computed again.",
        evidence=(FindingEvidence("preemptions for each answer", preempted, 0.0, "bound", "ratio"), pace),
        lever="Fewer requests there at once, or more KV memory (--kv-memory-bytes, --kv-dtype int8).",
        policy_path=place.deployment_path("limits.max_in_flight"),
    )


def _speculation(accepted: float, pace: FindingEvidence) -> Finding:
    return Finding(
        stage="decode",
        cause="speculation",
        summary="Most drafted tokens are wrong: verifying them costs more than it gives.",
        evidence=(FindingEvidence("drafted tokens that were right", accepted, _FEW_ACCEPTED, "bound", "ratio"), pace),
        lever="Switch it off (penstock engine --speculation off), or draft less (--num-speculative-tokens).",
    )


def _num_seqs(place: PolicyLines, state: ObservedDeployment, pace: FindingEvidence) -> Finding:
    return Finding(
        stage="decode",
        cause="num_seqs",
        summary=f"{place.deployment} decodes {state.num_seqs:.0f} sequences at once; each step takes longer.",
        evidence=(
            FindingEvidence("sequences", state.num_seqs, _BUSY_RATIO * state.max_num_seqs, "bound", "count"),
            pace,
        ),
        lever="Fewer requests there at once, or a replica.",
        policy_path=place.deployment_path("limits.max_in_flight"),
    )
