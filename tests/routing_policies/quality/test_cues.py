"""Words that mark a kind of work."""

from __future__ import annotations

import pytest

from routing_policies.quality.cues import CUES, cues_in


def kinds(text: str) -> set[str]:
    return {kind for kind, found in zip(CUES, cues_in(set(text.split())), strict=True) if found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("zebra", set()),
        ("sort these backwards", {"reversing", "sorting", "chaining"}),
        ("3 + 4", {"adding"}),
        ("cheapest python function", {"extremes", "coding", "computing"}),
    ],
)
def test_each_kind_counts_once_by_whole_words(text: str, expected: set[str]) -> None:
    assert kinds(text) == expected


def test_a_word_inside_another_is_no_cue() -> None:
    assert "adding" in kinds("add")
    assert kinds("ladders") == set()


def test_one_number_for_each_kind_in_the_order_of_the_names() -> None:
    found = cues_in(frozenset({"hello"}))
    assert len(found) == len(CUES) == len(set(CUES))
    assert found[CUES.index("greeting")] == 1.0 == sum(found)
