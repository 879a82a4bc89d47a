"""The sentences that say who answered a finished request, and why. Pure."""

from __future__ import annotations

from typing import Final

from gateway.telemetry.records.recent import ExplainedRequest, ShownDecision
from gateway.telemetry.records.record import CacheResult
from gateway.timeline import Outcome
from routing_policies.matching import IMPLIED_DIRECT

_BY_CAUSE: Final = {
    "within_slo": "it is the cheapest candidate that meets the latency targets",
    "good_enough": "it is the cheapest candidate whose quality reaches the threshold",
    "not_good_enough": "no candidate reaches the quality threshold in time, and it has the best quality",
    "unknown_prompt": "the quality predictor knows no prompt like this one, so its prediction does not count",
    "too_slow": "no candidate meets the latency targets, and it comes closest",
    "within_cap": "it has the best quality within the cost limit",
    "over_cap": "every candidate is above the cost limit, and it is the cheapest",
    "sticky": "this conversation stays with it",
    "canary": "this conversation is in the route's canary share",
    "stable": "this conversation is outside the route's canary share",
    "tried_first": "the cascade tries it first",
    "explored": "the route explores, and it was drawn at random",
}
_BY_POLICY: Final = {
    "first_available": "it is the first candidate of the route that can serve",
    "weighted": "it was drawn by the candidates' weights",
    "least_in_flight": "it has the most free permits",
    "nearest_first": "it is in the nearest zone that can serve",
    "latency_first": "it has the best score, in which the latency forecast counts most",
}
_BEST_SCORE: Final = "it has the best weighted score"


def explanation_of(found: ExplainedRequest) -> str:
    """Return who answered the request, and why, in one or two sentences."""
    if found.outcome == Outcome.CACHED:
        return _cached(found)
    if not found.decisions:
        return _not_sent(found)
    *earlier, last = found.decisions
    sentences = [_chosen(last, found)]
    if failed := [decision.deployment for decision in earlier if decision.deployment]:
        sentences.insert(0, f"{', '.join(failed)} failed first.")
    if found.quote is not None and found.quote.result == "missed":
        sentences.append(f"Its first token missed the quoted bound of {found.quote.bound_ms:.0f} ms.")
    if found.handed_over is not None:
        sentences.append(_handed_over(found))
    if found.neighbour is not None and found.neighbour.drafted:
        sentences.append(_drafted(found.neighbour.match_probability or 0.0, found.predicted_tokens))
    elif found.predicted_tokens is not None:
        sentences.append(f"Of the client's prediction, {_counted(found.predicted_tokens)}.")
    return " ".join(sentences)


def _cached(found: ExplainedRequest) -> str:
    near = found.neighbour
    if found.cache == CacheResult.HIT_SEMANTIC and near is not None and near.match_probability is not None:
        threshold = "" if near.threshold is None else f", and the threshold is {_percent(near.threshold)}"
        return (
            "The semantic cache answered: a cached prompt means the same with a match probability of "
            f"{_percent(near.match_probability)}{threshold}."
        )
    if found.cache_reason == "shared":
        return "The response cache answered: an equal request was in flight, and both got its response."
    return "The response cache answered: an equal request was answered before."


def _not_sent(found: ExplainedRequest) -> str:
    if found.outcome == Outcome.SHED:
        reason = (found.shed_reason or "overload").replace("_", " ")
        return f"No deployment was chosen: the request was shed ({reason})."
    code = "" if found.code is None else f" ({found.code})"
    return f"No deployment was chosen: the request ended with status {found.status}{code}."


def _chosen(decision: ShownDecision, found: ExplainedRequest) -> str:
    if decision.deployment is None:
        return f"No candidate had a free permit, so the request waited for {found.deployment}."
    num = len(decision.totals)
    if found.route == IMPLIED_DIRECT:
        reason = "the request names its model"
    elif num == 1 and decision.policy != "first_available":
        reason = "it is the only candidate" + (" left" if decision.dropped else "")
    else:
        reason = _BY_CAUSE.get(decision.cause) or _BY_POLICY.get(decision.policy, _BEST_SCORE)
    among = f" from {num} candidates" if num > 1 else ""
    return f"{decision.deployment} was chosen{among}: {reason}{_numbers(decision)}."


def _numbers(decision: ShownDecision) -> str:
    """Return the chosen candidate's quality and the threshold, where they were compared."""
    quality = decision.qualities.get(decision.deployment or "")
    if quality is None or decision.quality_threshold is None or len(decision.totals) == 1:
        return ""
    return f" (quality {_percent(quality)}, threshold {_percent(decision.quality_threshold)})"


def _handed_over(found: ExplainedRequest) -> str:
    assert found.handed_over is not None, "checked by the caller"
    first = found.handed_over.deployment
    if first == found.deployment:
        return f"Its answer was requested twice, because no other deployment could take over from {first}."
    return f"The first tokens of {first} were not sure enough, so {found.deployment} took over."


def _drafted(match_probability: float, predicted_tokens: tuple[int, int] | None) -> str:
    sent = f"A near miss of the semantic cache, {_percent(match_probability)} likely, went along as a prediction"
    if predicted_tokens is None:
        return f"{sent}; the answer does not tell how much of it was right."
    return f"{sent}: of it, {_counted(predicted_tokens)}."


def _counted(predicted_tokens: tuple[int, int]) -> str:
    return f"{predicted_tokens[0]} tokens were accepted and {predicted_tokens[1]} rejected"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.3g} %"
