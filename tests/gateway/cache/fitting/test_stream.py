"""A stream into an empty cache: what counts as a hit, as wrong, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.fitting.questions import Questions
from gateway.cache.fitting.stream import Played, best_threshold_hits, play
from gateway.cache.similarity.decision import NEVER, MatchModel

TEXTS = [
    "How do I prune an olive tree?",
    "How can I prune an olive tree?",
    "How do I prune olive trees?",
    "How do I graft an olive tree?",
]


def questions(question_groups: list[int]) -> Questions:
    return Questions(texts=TEXTS, question_groups=np.array(question_groups), components=np.array(question_groups))


def close_vectors(cosine: float = 0.99) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Four of unit length, each pair with about that cosine."""
    spread = np.sqrt(1 / cosine - 1)
    rows = np.hstack([np.ones((4, 1)), spread * np.eye(4)]).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def test_a_hit_inserts_nothing_and_a_wrong_one_is_counted() -> None:
    played = play(questions([1, 1, 2, 3]), close_vectors(), MatchModel.shipped(), threshold=0.3)
    assert played.hits.tolist() == [False, True, True, False]
    assert played.wrong.tolist() == [False, False, True, False]
    assert (played.hit_ratio, played.error_ratio) == (0.5, 0.25)


def test_without_a_threshold_to_reach_nothing_is_given() -> None:
    assert not play(questions([1, 1, 1, 1]), close_vectors(), MatchModel.shipped(), threshold=NEVER).hits.any()


def test_what_is_far_is_not_given() -> None:
    assert not play(questions([1, 1, 1, 1]), close_vectors(cosine=0.5), MatchModel.shipped(), threshold=0.01).hits.any()


def test_limits_hold_the_error_and_are_wider_for_texts_that_belong_together() -> None:
    rng = np.random.default_rng(1)
    luck = np.repeat(rng.random(200) < 0.05, 10)
    together = Played(luck, luck, np.repeat(np.arange(200), 10)).error_limits()
    alone = Played(luck, luck, np.arange(2000)).error_limits()
    assert together[0] < alone[0] < luck.mean() < alone[1] < together[1]


def test_no_error_seen_is_no_proof_of_none() -> None:
    none = np.zeros(400, bool)
    assert Played(none, none, np.arange(400)).error_limits()[1] == pytest.approx(3.689 / 400)


def test_the_best_threshold_is_the_lowest_that_keeps_the_error() -> None:
    vectors = close_vectors()
    assert best_threshold_hits(questions([1, 1, 1, 1]), vectors, 0.0) > 0.5
    assert best_threshold_hits(questions([1, 2, 3, 4]), vectors, 0.0) == 0.0
