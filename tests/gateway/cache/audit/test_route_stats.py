"""Similar answers of one route, counted."""

from __future__ import annotations

from gateway.cache.audit.route_stats import RouteStats
from tests.gateway.cache.word_encoder import NearJudge

BOUND, FLOOR = 0.01, 0.8


def test_the_same_answer_to_the_same_question_is_spent_once_and_not_refused_later() -> None:
    book = RouteStats(NearJudge())
    for _ in range(1000):
        book.note_request(0.0)
        book.note_hit(0.0, b"again", b"kept", 0.8)
    assert book.usage.raised(FLOOR, BOUND) == FLOOR
    for number in range(1000):
        book.note_hit(0.0, b"%d" % number, b"kept", 0.8)
    plain = book.floor(BOUND)
    assert book.floor_for(b"again", b"kept", BOUND) == plain < book.floor_for(b"new", b"kept", BOUND)
