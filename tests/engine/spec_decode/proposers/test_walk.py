"""Guesses of one row: from its text, looked up or from whoever takes a step in between."""

from __future__ import annotations

import numpy as np

from engine.cpu.multi_step.argmax import SURENESSES
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_token import (
    FORCED,
    MODEL,
    by_both,
    by_memory,
    by_model,
    by_text,
    first_by_heads,
    is_by_model,
    near_end,
    prior,
)
from engine.spec_decode.proposers.medusa import HeadPredictions
from engine.spec_decode.proposers.ngram import NgramProposer
from engine.spec_decode.proposers.walk import Walk
from engine.step.sequence import Sequence

END = 99
SURE = first_by_heads(is_drawn=False, is_near_end=False) + SURENESSES - 1
RECORD = AcceptanceStats()


def walk(token_ids: list[int], *, limit: int = 8) -> Walk:
    params = SamplingParams(max_tokens=100, temperature=0.0, stop_token_ids=(END,))
    add = Add(seq_id=1, prompt_token_ids=token_ids, params=params)
    return Walk(Sequence.from_add(add, arrival_index=0, received_at=0.0), limit, RECORD)


def go(walk: Walk, least_next: float = 0.0) -> None:
    NgramProposer(RECORD).go([walk], least_next)


def test_copies_on_from_where_the_newest_tokens_stood() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    go(found)
    assert found.token_ids[:3] == [3, 4, 5]


def test_what_heads_say_stands_behind_the_newest_token_whatever_was_guessed_since() -> None:
    ahead = HeadPredictions(np.array([[7, 8, -1], [11, 12, 13]]), np.full((2, 3), SURE))
    over, found = walk([1, 2, 3], limit=0), walk([4, 5, 6])
    found.take(10, FORCED)
    NgramProposer(RECORD).go([over, found], ahead=ahead)
    assert over.token_ids == []
    assert found.token_ids == [10, 12, 13]


def test_the_end_of_an_answer_is_never_a_guess() -> None:
    found = walk([1, 2, 3, END, 5, 1, 2])
    go(found)
    assert found.token_ids == [3]
    assert found.is_over


def test_stops_where_guesses_are_less_likely_than_asked() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    go(found, 0.99)
    assert found.token_ids == []
    assert not found.is_over


def test_a_step_taken_in_between_is_walked_on_from() -> None:
    found = walk([1, 2, 3, 4, 5, 6, 9, 9, 8])
    assert not found.token_ids
    found.take(3, MODEL)
    go(found)
    assert found.token_ids[:3] == [3, 4, 5]


def test_after_a_rewind_the_way_is_found_again() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    go(found)
    before = list(found.guesses)
    found.rewind(1)
    assert found.token_ids == [3]
    assert found.dropped == before[1:]
    go(found)
    assert found.guesses == before


def test_no_more_guesses_than_the_limit() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2], limit=2)
    go(found)
    found.take(7, MODEL)
    assert found.token_ids == [3, 4]
    assert found.is_over


def test_kinds_do_not_overlap() -> None:
    kinds = [by_model(1.0 - 0.5**n, is_drawn=drawn) for n in range(10) for drawn in (False, True)]
    kinds += [by_text(size) for size in (1, 2, 3, 4, 6, 9, 16)]
    kinds += [by_memory(size, streak) for size in (1, 2, 3, 5) for streak in range(5)]
    kinds += [by_both(size, streak) for size in (1, 2, 3, 4, 6, 9, 16) for streak in range(5)]
    kinds += [near_end(kind) for kind in kinds]
    assert len(set(kinds)) == len(kinds)
    assert sum(map(is_by_model, kinds)) == 40
    assert len(AcceptanceStats().chances) > max(kinds)


def test_a_sure_model_is_believed_more() -> None:
    chances = [prior(by_model(probability, is_drawn=False)) for probability in (0.1, 0.6, 0.9, 0.99)]
    assert chances == sorted(chances)
    assert chances[-1] > 0.98
