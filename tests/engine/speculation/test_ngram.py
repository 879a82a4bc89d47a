"""Prompt lookup proposes what followed the newest tokens the last time they occurred."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.ngram import NgramProposer


def tokens(*ids: int) -> array[int]:
    return array("q", ids)


def test_proposes_what_followed_the_same_tokens_before() -> None:
    assert NgramProposer().propose(tokens(1, 2, 3, 4, 5, 9, 1, 2, 3), 2) == [4, 5]


def test_the_latest_of_several_places_wins() -> None:
    assert NgramProposer().propose(tokens(1, 2, 7, 1, 2, 8, 1, 2), 1) == [8]


def test_a_longer_match_wins_over_a_later_shorter_one() -> None:
    assert NgramProposer().propose(tokens(5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2), 1) == [7]


def test_nothing_repeats_nothing_is_proposed() -> None:
    assert NgramProposer().propose(tokens(1, 2, 3, 4), 4) == []


def test_a_running_repetition_continues_itself() -> None:
    assert NgramProposer().propose(tokens(4, 4, 4, 4), 3) == [4]


def test_proposals_stop_at_the_known_end() -> None:
    assert NgramProposer().propose(tokens(1, 2, 3, 1, 2), 9) == [3, 1, 2]


def test_bytes_that_match_across_token_borders_are_no_match() -> None:
    # 256 is the byte sequence 00 01 00 …: shifted by one byte it looks like 1.
    assert NgramProposer(longest=1, shortest=1).propose(tokens(256, 1 << 16, 7, 1), 1) == []


@pytest.mark.parametrize(("longest", "shortest"), [(1, 2), (3, 0)])
def test_impossible_sizes_are_refused(longest: int, shortest: int) -> None:
    with pytest.raises(ValueError, match="n-gram sizes"):
        NgramProposer(longest=longest, shortest=shortest)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 6))
def test_agrees_with_a_search_written_out(ids: list[int], max_drafts: int) -> None:
    def search() -> list[int]:
        for size in range(min(5, len(ids) - 1), 1, -1):
            for at in range(len(ids) - size - 1, -1, -1):
                if ids[at : at + size] == ids[-size:]:
                    return ids[at + size : at + size + max_drafts]
        return []

    assert NgramProposer().propose(array("q", ids), max_drafts) == search()
