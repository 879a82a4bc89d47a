"""Similar answers of one route, counted."""

from __future__ import annotations

from gateway.cache.audit.route_stats import RouteStats
from tests.gateway.cache.audit.test_budget_usage import BOUND, THRESHOLD
from tests.gateway.cache.word_encoder import NearMatchModel


def test_the_same_answer_to_the_same_question_is_spent_once_and_not_refused_later() -> None:
    stats = RouteStats(NearMatchModel())
    for _ in range(1000):
        stats.note_request(0.0)
        stats.note_hit(0.0, b"again", b"kept", 0.8)
    assert stats.usage.raised(THRESHOLD, BOUND) == THRESHOLD
    for number in range(1000):
        stats.note_hit(0.0, b"%d" % number, b"kept", 0.8)
    plain = stats.threshold(BOUND)
    assert stats.threshold_for(b"again", b"kept", BOUND) == plain < stats.threshold_for(b"new", b"kept", BOUND)
