"""Gaps of scores at the tokens where greedy texts of two engines part."""

from __future__ import annotations

import pytest

from loadtests.peers.parity import Continuation

EXPECTED = Continuation(("a", "a b", "a b \ufffd", "a b ü"), (1.0, 0.5e-4, 2.0, 0.25))


@pytest.mark.parametrize(
    ("text", "gap"), [("a b ü", None), ("a c d", 0.5e-4), ("x", 1.0), ("a b ö", 0.25), ("a b ", 0.25)]
)
def test_the_gap_is_that_of_the_token_at_which_the_texts_part(text: str, gap: float | None) -> None:
    assert EXPECTED.gap(text) == gap


def test_half_a_character_at_the_end_does_not_count() -> None:
    cut = Continuation(EXPECTED.texts[:3], EXPECTED.gaps[:3])
    assert cut.gap("a b ") is None
