"""Draft tokens stand as far as the sampler chose the same."""

from __future__ import annotations

from engine.protocol import TokenLogprobs
from engine.spec_decode.verifier import accept, accept_batch


def test_tokens_are_accepted_up_to_the_first_difference() -> None:
    logprobs = [TokenLogprobs(-float(n)) for n in range(4)]
    result = accept((7, 8, 9), [7, 8, 5, 6], logprobs, [False] * 4)
    assert result.token_ids == [7, 8, 5]
    assert result.logprobs == logprobs[:3]


def test_all_drafts_right_bring_one_token_more() -> None:
    assert accept((7, 8), [7, 8, 9], [None] * 3, [False] * 3).token_ids == [7, 8, 9]


def test_a_position_without_a_choice_ends_the_run_before_it() -> None:
    assert accept((7, 8), [7, 8, 9], [None] * 3, [False, True, False]).token_ids == [7]
    assert accept((7, 8), [7, 8, 9], [None] * 3, [True, False, False]).error is not None


def test_rows_are_accepted_one_by_one() -> None:
    found = accept_batch([(7,), (), (8, 9)], [7, 1, 2, 8, 5, 6], [None] * 6, [False] * 6)
    assert [result.token_ids for result in found] == [[7, 1], [2], [8, 5]]
