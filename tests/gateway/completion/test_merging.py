"""Pieces of JSON that become one object, or that do not fit and are not guessed at."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.completion.merging import MAX_INDEX, CannotMerge, Merged, index_of


def merged(*pieces: dict[str, Any], is_text: bool = True) -> dict[str, Any]:
    whole = Merged(is_text=is_text)
    for piece in pieces:
        whole.add(piece)
    return whole.finished()


def test_text_is_joined_and_names_come_whole() -> None:
    pieces = [{"role": "assistant", "content": "Hel"}, {"role": "assistant", "content": "lo"}, {"content": ""}]
    assert merged(*pieces) == {"role": "assistant", "content": "Hello"}


def test_the_same_piece_of_known_text_may_come_twice_and_of_other_words_not() -> None:
    assert merged({"content": "ha"}, {"content": "ha"}) == {"content": "haha"}
    with pytest.raises(CannotMerge, match="pieces of language"):
        merged({"language": "en"}, {"language": "en"})


def test_items_of_one_index_are_one_item_in_the_order_of_their_indexes() -> None:
    calls = [
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "["}}]},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "]"}}]},
    ]
    assert merged(*calls)["tool_calls"] == [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "[]"}},
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        [{"id": "a"}, {"id": "b"}],
        [{"content": "x"}, {"content": {"text": "x"}}],
        [{"content": {"text": "x"}}, {"content": "x"}],
        [{"list": [1]}, {"list": "x"}],
        [{"tool_calls": [{"index": 0, "id": "a"}, {"index": 0, "id": "b"}]}],
        [{"tool_calls": [{"index": 0}, {"id": "b"}]}],
        [{"data": "QQ=="}, {"data": "Qg=="}],
    ],
)
def test_ambiguous_members_are_an_error(pieces: list[dict[str, Any]]) -> None:
    with pytest.raises(CannotMerge):
        merged(*pieces)


def test_places_in_a_text_are_no_indexes_of_items() -> None:
    first, second = {"index": 5, "url": "a"}, {"index": 5, "url": "b"}
    assert merged({"annotations": [first]}, {"annotations": [second]}) == {"annotations": [first, second]}


def test_null_neither_ends_nor_replaces_what_came() -> None:
    assert merged({"content": "a", "refusal": None}, {"content": None}) == {"content": "a", "refusal": None}


def test_outside_of_a_delta_the_last_value_counts() -> None:
    assert merged({"model": "a", "created": 1}, {"model": "b", "created": 2}, is_text=False) == {
        "model": "b",
        "created": 2,
    }


def test_a_list_that_comes_whole_each_time_is_taken_in_its_latest_state() -> None:
    whole = Merged(is_text=False)
    for state in ([1], [1, 2], [3]):
        whole.add_latest("results", state)
    assert whole.finished() == {"results": [1, 2, 3]}


def test_depth_has_a_bound() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(CannotMerge, match="too deep"):
        merged(deep)


@pytest.mark.parametrize("index", [-1, MAX_INDEX, 1.0, "0", True])
def test_an_index_is_a_small_whole_number(index: Any) -> None:
    assert index_of({"index": MAX_INDEX - 1}) == MAX_INDEX - 1
    assert index_of({}) == index_of({"index": None}) == 0
    with pytest.raises(CannotMerge):
        index_of({"index": index})
