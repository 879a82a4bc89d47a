"""The sentences that say who answered a request, and why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.admin.views.explanation import explanation_of
from gateway.telemetry.records.recent import ExplainedRequest, ShownDecision, ShownHandOver
from gateway.telemetry.records.record import Neighbourhood

DECISION = ShownDecision(
    deployment="large",
    policy="quality_then_latency",
    reason="chosen from 2",
    totals={"small": 0.5, "large": 0.9},
    scores={},
    dropped={},
    cause="good_enough",
    qualities={"small": 0.41234, "large": 0.95},
    quality_threshold=0.8,
)
FIELDS: dict[str, Any] = {
    **dict.fromkeys(field.name for field in msgspec.structs.fields(ExplainedRequest) if field.required),
    "outcome": "completed",
    "status": 200,
    "deployment": "large",
    "cache": "miss",
    "decisions": [DECISION],
}


NEAR_MISS = Neighbourhood(
    entry_id="e", similarity=0.8, match_probability=0.62, threshold=0.97, served=False, drafted=True, why="doubtful"
)


def changed(**fields: Any) -> ShownDecision:
    return msgspec.structs.replace(DECISION, **fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "large was chosen from 2 candidates: it is the cheapest candidate whose quality reaches the threshold "
             "(quality 95 %, threshold 80 %)."),
        ({"decisions": [changed(totals={"large": 1.0}, dropped={"small": "not_ready"})]},
         "large was chosen: it is the only candidate left."),
        ({"decisions": [changed(totals={"large": 1.0})], "route": "implied-direct"},
         "large was chosen: the request names its model."),
        ({"decisions": [changed(cause="first", policy="first_available", totals={"large": 1.0})]},
         "large was chosen: it is the first candidate of the route that can serve."),
        ({"decisions": [changed(cause="first", policy="first_available", qualities={}, quality_threshold=None)]},
         "large was chosen from 2 candidates: it is the first candidate of the route that can serve."),
        ({"decisions": [changed(deployment="small"), changed(totals={"large": 1.0}, dropped={"small": "full"})]},
         "small failed first. large was chosen: it is the only candidate left."),
        ({"decisions": [changed(deployment="small", policy="cascade", cause="tried_first", quality_threshold=None)],
          "handed_over": ShownHandOver(deployment="small", prompt_tokens=9, completion_tokens=4)},
         "small was chosen from 2 candidates: the cascade tries it first. "
         "The first tokens of small were not sure enough, so large took over."),
        ({"decisions": [changed(deployment=None)]}, "No candidate had a free permit, so the request waited for large."),
        ({"decisions": [], "outcome": "shed", "status": 503, "shed_reason": "queue_full"},
         "No deployment was chosen: the request was shed (queue full)."),
        ({"decisions": [], "outcome": "rejected", "status": 401, "code": "invalid_api_key"},
         "No deployment was chosen: the request ended with status 401 (invalid_api_key)."),
        ({"outcome": "cached", "cache": "hit_exact", "cache_reason": "found"},
         "The response cache answered: an equal request was answered before."),
        ({"outcome": "cached", "cache": "hit_semantic", "neighbour": Neighbourhood(
            entry_id="e", similarity=0.98, match_probability=0.99321, threshold=0.97, served=True, why="w")},
         "The semantic cache answered: a cached prompt means the same with a match probability of 99.3 %, "
         "and the threshold is 97 %."),
        ({"decisions": [changed(totals={"large": 1.0})], "neighbour": NEAR_MISS, "predicted_tokens": (40, 2)},
         "large was chosen: it is the only candidate. A near miss of the semantic cache, 62 % likely, went along as a "
         "prediction: of it, 40 tokens were accepted and 2 rejected."),
        ({"decisions": [changed(totals={"large": 1.0})], "neighbour": NEAR_MISS},
         "large was chosen: it is the only candidate. A near miss of the semantic cache, 62 % likely, went along as a "
         "prediction; the answer does not tell how much of it was right."),
        ({"decisions": [changed(totals={"large": 1.0})], "predicted_tokens": (5, 1)},
         "large was chosen: it is the only candidate. "
         "Of the client's prediction, 5 tokens were accepted and 1 rejected."),
    ],
)  # fmt: skip
def test_the_sentences_name_who_was_chosen_and_why(fields: dict[str, Any], sentence: str) -> None:
    assert explanation_of(ExplainedRequest(**{**FIELDS, **fields})) == sentence
