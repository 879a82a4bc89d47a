"""Tokens to text: the same text however the tokens come, and no half characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.text.detokenizer import Detokenizer


@given(st.text(), st.lists(st.integers(1, 3), max_size=30))
def test_any_cutting_of_the_bytes_gives_the_same_text(text: str, lengths: list[int]) -> None:
    text = text.encode(errors="replace").decode()
    data, detokenizer, shown = text.encode(), Detokenizer(), ""
    for length in lengths:
        shown += detokenizer.feed(data[:length])
        data = data[length:]
        assert text.startswith(shown)
    assert shown + detokenizer.feed(data) + detokenizer.flush() == text


@given(st.binary(max_size=20), st.integers(0, 20))
def test_broken_bytes_become_replacement_characters_whatever_the_cutting(data: bytes, at: int) -> None:
    detokenizer = Detokenizer()
    shown = detokenizer.feed(data[:at]) + detokenizer.feed(data[at:]) + detokenizer.flush()
    assert shown == data.decode(errors="replace")


def test_a_character_waits_for_its_last_byte() -> None:
    detokenizer = Detokenizer()
    first, last = "é".encode()[:1], "é".encode()[1:]
    assert detokenizer.feed(first) == ""
    assert detokenizer.feed(last) == "é"


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed("é".encode()[:1]) == ""
    assert detokenizer.flush() == "\ufffd"
