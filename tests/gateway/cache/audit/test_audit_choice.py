"""Which similar answers are audited: by doubt, and for certain once the same question got the same answer again."""

from __future__ import annotations

import pytest

from gateway.cache.audit.audit_choice import COMPARED_RATIO, MANY, MAX_EXPOSURES, MAX_PAIRS, AuditChoice
from gateway.cache.audit.route_stats import RouteStats
from tests.gateway.cache.word_encoder import NearMatchModel

RATIO = 0.02


def test_the_same_answer_to_the_same_question_is_audited_before_it_is_given_often() -> None:
    choice, stats = AuditChoice(), RouteStats(NearMatchModel())
    seen = [choice.of_served(b"asked", b"kept", 0.9, RATIO, stats) for _ in range(MAX_EXPOSURES)]
    assert seen[:-1] == pytest.approx([RATIO] * (MAX_EXPOSURES - 1))
    assert seen[-1] == 1.0
    assert choice.of_served(b"asked", b"other", 0.9, RATIO, stats) < 1.0


def test_after_an_audit_it_is_given_many_times_before_the_next() -> None:
    choice, stats = AuditChoice(), RouteStats(NearMatchModel())
    choice.audited(b"asked", b"kept")
    seen = [choice.of_served(b"asked", b"kept", 0.9, RATIO, stats) for _ in range(MANY + MAX_EXPOSURES)]
    assert seen.index(1.0) == MANY + MAX_EXPOSURES - 1


def test_without_audits_nothing_is_audited_however_often() -> None:
    choice, stats = AuditChoice(), RouteStats(NearMatchModel())
    assert {choice.of_served(b"asked", b"kept", 0.9, 0.0, stats) for _ in range(10)} == {0.0}


def test_what_no_longer_fits_is_counted_anew() -> None:
    choice, stats = AuditChoice(), RouteStats(NearMatchModel())
    for number in range(MAX_PAIRS + 1):
        choice.of_served(b"asked%d" % number, b"kept", 0.9, RATIO, stats)
    assert [choice.of_served(b"asked0", b"kept", 0.9, RATIO, stats) for _ in range(2)] == pytest.approx([RATIO, RATIO])


def test_comparisons_that_cost_nothing_are_made_where_they_can_prove_something() -> None:
    assert AuditChoice.of_other(0.9, RATIO, 0.8) == pytest.approx(COMPARED_RATIO * RATIO)
    assert AuditChoice.of_other(0.7, RATIO, 0.8) == 0.0
    assert AuditChoice.of_other(0.9, 1.0, 0.8) == 1.0
