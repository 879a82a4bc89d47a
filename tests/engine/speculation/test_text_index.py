"""Prompt lookup finds what followed the newest tokens the last time they occurred."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.text_index import LONGEST, TextIndex, match_length


def continuation(*ids: int) -> int | None:
    """The token behind the place found for the end of a text."""
    index = TextIndex()
    index.extend(array("q", ids))
    place = index.find(ids)
    return None if place is None else ids[place]


def test_finds_what_followed_the_same_tokens_before() -> None:
    assert continuation(1, 2, 3, 4, 5, 9, 1, 2, 3) == 4


def test_the_latest_of_several_places_wins() -> None:
    assert continuation(1, 2, 7, 1, 2, 8, 1, 2) == 8


def test_a_longer_match_wins_over_a_later_shorter_one() -> None:
    assert continuation(5, 6, 1, 2, 7, 6, 1, 2, 8, 5, 6, 1, 2) == 7


def test_where_nothing_repeats_nothing_is_found() -> None:
    assert continuation(1, 2, 3, 4) is None


def test_a_running_repetition_continues_itself() -> None:
    assert continuation(4, 4, 4, 4) == 4


def test_a_match_is_as_long_as_its_tokens_are_equal() -> None:
    text = array("q", [9, 1, 2, 3, 7, 8, 1, 2, 3])
    assert match_length(text, 4, [8, 1, 2, 3]) == 3
    assert match_length(array("q", [1] * 60), 50, [1] * 60) == LONGEST


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 40))
def test_agrees_with_a_search_written_out_however_the_text_grew(ids: list[int], first: int) -> None:
    def search() -> int | None:
        for size in (4, 2, 1):
            for place in range(len(ids) - 1, size - 1, -1):
                if size <= len(ids) and ids[place - size : place] == ids[-size:]:
                    return place
        return None

    index = TextIndex()
    for length in (*range(min(first, len(ids)), len(ids)), len(ids)):
        index.extend(array("q", ids[:length]))
    assert index.find(ids) == search()
