"""Audited streams: the gateway's own counts hold the error budget when a domain changes for the worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.match_models import MatchModels
from gateway.cache.fitting.questions import Questions
from loadtests.cache.audited_stream import Audits, Stream, Vectors, changed_stream, play_audited, zipf_stream
from tests.gateway.cache.word_encoder import NearMatchModel

MATCH_MODELS = MatchModels(first=NearMatchModel(), encoder_id=None, learn=lambda samples: NearMatchModel())
BOUND = 0.01


def pairs_of(count: int, *, is_right: bool) -> tuple[Questions, Vectors]:
    """Each question is called in two wordings that lie near each other and far from all others."""
    numbers = np.arange(2 * count)
    question_groups = numbers // 2 if is_right else numbers
    rng = np.random.default_rng(int(is_right))
    centres = np.repeat(rng.normal(size=(count, 64)), 2, axis=0)
    rows = (centres + 0.3 * rng.normal(size=centres.shape)).astype(np.float32)
    texts = [f"{'right' if is_right else 'wrong'} question {number}" for number in numbers]
    questions = Questions(texts=texts, question_groups=question_groups, components=numbers // 2)
    return questions, rows / np.linalg.norm(rows, axis=1, keepdims=True)


def in_order(requested: tuple[Questions, Vectors]) -> Stream:
    return Stream(name="all", questions=requested[0], vectors=requested[1], order=np.arange(len(requested[0])))


def test_right_answers_are_given_and_wrong_ones_close_the_tier() -> None:
    right = play_audited(in_order(pairs_of(300, is_right=True)), MATCH_MODELS, 0.05, Audits(audit_ratio=0.1))
    assert right.played.hit_ratio == pytest.approx(0.5, abs=0.01)
    assert right.played.error_ratio == 0.0
    assert right.levels[0] == 600
    wrong = play_audited(in_order(pairs_of(300, is_right=False)), MATCH_MODELS, BOUND, Audits(audit_ratio=0.5))
    assert wrong.levels[CLOSED] > 400
    assert wrong.num_audits < 40
    assert wrong.played.error_ratio < 0.1
    unaudited = play_audited(in_order(pairs_of(300, is_right=False)), MATCH_MODELS, 0.05, Audits(audit_ratio=0.0))
    assert (unaudited.num_audits, unaudited.played.error_ratio) == (0, unaudited.played.hit_ratio)
    assert unaudited.played.error_ratio == pytest.approx(0.5, abs=0.01)


def test_only_what_comes_after_a_change_of_domain_counts() -> None:
    stream = changed_stream("x", pairs_of(50, is_right=True), pairs_of(60, is_right=False), count=80)
    audited = play_audited(stream, MATCH_MODELS, 0.05, Audits(audit_ratio=0.0))
    assert len(audited.played.hits) == 80
    assert audited.played.error_ratio == audited.played.hit_ratio > 0.3


def test_repeats_are_exact_answers_and_an_audited_one_is_not_wrong_twice() -> None:
    stream = zipf_stream(*pairs_of(40, is_right=False), exponent=1.0, count=2000, seed=1)
    audited = play_audited(stream, MATCH_MODELS, 0.9, Audits(audit_ratio=0.001))
    unaudited = play_audited(stream, MATCH_MODELS, 0.9, Audits(audit_ratio=0.0))
    assert audited.exact_ratio > 0.4
    assert unaudited.played.error_ratio > 3 * audited.played.error_ratio > 0.0
    assert (
        stream.order.tolist()
        == zipf_stream(*pairs_of(40, is_right=False), exponent=1.0, count=2000, seed=1).order.tolist()
    )


def test_false_verdicts_tighten_a_tier_that_is_right() -> None:
    audits = Audits(audit_ratio=0.5, noise=0.5)
    stream = in_order(pairs_of(300, is_right=True))
    noisy = play_audited(stream, MATCH_MODELS, BOUND, audits)
    assert noisy.levels[CLOSED - 1] + noisy.levels[CLOSED] > 300
    assert noisy.played.hit_ratio < 0.1
    assert play_audited(stream, MATCH_MODELS, BOUND, replace(audits, noise=0.0)).levels[CLOSED] == 0
