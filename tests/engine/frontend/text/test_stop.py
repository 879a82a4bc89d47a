"""Stop strings: property tests against a search in the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.text.stop import StopMatcher

TEXTS = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    """All text shown, and the stop string that was found."""
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        shown += matcher.feed(piece)
        if matcher.matched is not None:
            return shown, matcher.matched
    return shown + matcher.flush(), None


def search(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The same by brute force: the stop string that ends first, the longest of those."""
    found = [(text.index(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end - len(stop)], stop


def cut(text: str, lengths: list[int]) -> list[str]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(text[start : start + length])
        start += length
    return [*pieces, text[start:]]


@given(TEXTS, STOPS, st.lists(st.integers(0, 6), max_size=20))
def test_any_cutting_finds_what_a_search_of_the_whole_text_finds(text: str, stops: list[str], cuts: list[int]) -> None:
    assert run(cut(text, cuts), stops) == search(text, stops)


@given(TEXTS, STOPS)
def test_text_that_may_still_become_a_stop_string_is_not_shown(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for i, character in enumerate(text, 1):
        shown += matcher.feed(character)
        if matcher.matched is not None:
            return
        longest = max((k for stop in stops for k in range(len(stop)) if text[:i].endswith(stop[:k])), default=0)
        assert shown == text[: i - longest]


def test_text_that_cannot_be_a_stop_string_is_shown_at_once() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.feed("hello ") == "hello "
    assert matcher.feed("E") == ""
    assert matcher.feed("N") == ""
    assert matcher.feed("T") == "ENT"
    assert matcher.flush() == ""


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopMatcher([]).feed("anything") == "anything"
