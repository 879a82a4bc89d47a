"""Similar answers of one route, counted, and the threshold that follows from them."""

from __future__ import annotations

from gateway.cache.audit.budget_usage import BEGINNING, MEMORY
from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.route_stats import RouteStats
from gateway.cache.similarity.decision import EntryAudits
from tests.gateway.cache.audit.test_budget_usage import BOUND, THRESHOLD
from tests.gateway.cache.audit.test_error_budget import sample
from tests.gateway.cache.word_encoder import NearMatchModel


class OpenMatchModel(NearMatchModel):
    """Has a threshold of its own for each bound."""

    def match_probability(
        self, requested: str, stored: str, *, similarity: float, runner_up: float | None, track: EntryAudits | None
    ) -> float:
        return similarity

    def threshold(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        return max(0.3, 0.9 - 5.0 * max_error_ratio)


def found(stats: RouteStats, count: int, match_probability: float) -> None:
    for number in range(count):
        stats.note_request(0.0)
        stats.note_lookup(b"%d" % number, b"kept", match_probability, match_probability)


def test_the_same_answer_to_the_same_question_is_spent_once_and_not_refused_later() -> None:
    stats = RouteStats(NearMatchModel())
    for _ in range(BEGINNING):
        stats.note_request(0.0)
        stats.note_hit(0.0, b"again", b"kept", 0.8)
    assert stats.usage.raised(THRESHOLD, BOUND) == THRESHOLD
    for number in range(1000):
        stats.note_hit(0.0, b"%d" % number, b"kept", 0.8)
    plain = stats.threshold(BOUND)
    assert stats.threshold_for(b"again", b"kept", BOUND) == plain < stats.threshold_for(b"new", b"kept", BOUND)


def test_the_shipped_threshold_holds_until_there_is_traffic_and_bounds_what_traffic_alone_may_loosen() -> None:
    stats = RouteStats(OpenMatchModel())
    assert stats.threshold(BOUND) == 0.85
    found(stats, BEGINNING, 0.1)
    assert stats.threshold(BOUND) == OpenMatchModel().threshold(2 * BOUND), "little lies near: all of it may be served"
    found(stats, MEMORY, 0.9)
    assert stats.threshold(BOUND) > 0.9, "a tenth of doubt a request is more than the budget"


def test_audits_loosen_the_threshold_as_far_as_they_prove_and_tighten_it_by_what_they_find() -> None:
    stats = RouteStats(OpenMatchModel())
    found(stats, BEGINNING, 0.6)
    shipped = stats.threshold(BOUND)
    for number in range(200):
        stats.add(sample(number, match_probability=0.7, served=False))
    proven = stats.threshold(BOUND)
    for number in range(200, 260):
        stats.add(sample(number, match_probability=0.7, wrong=True, served=False))
    assert proven < shipped
    assert stats.threshold(BOUND) >= shipped
    stats.level = CLOSED
    assert stats.threshold(BOUND) > 1.0
    assert stats.lowest(BOUND) < 1.0, "closed, it compares what the level below would serve"
    assert RouteStats(OpenMatchModel()).threshold(0.0) > 1.0
