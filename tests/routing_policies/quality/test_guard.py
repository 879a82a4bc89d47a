"""The guard that shows prompts like those of the training from others."""

from __future__ import annotations

import pytest

from routing_policies.quality.features import Features
from routing_policies.quality.guard import END_WORDS, NoveltyGuard

GUARD = NoveltyGuard(words=frozenset({"add", "and"}), max_unknown=0.5, lowest=(0.1, 0.0), highest=(0.4, 1.0))


def features(words: str, *numbers: float) -> Features:
    return Features(list(numbers or (0.2, 0.5, 0.9)), set(words.split()), words.split())


@pytest.mark.parametrize(
    ("name", "requested", "is_known"),
    [
        ("inside", features("add x and y"), True),
        ("most words unknown", features("add x y z"), False),
        ("a number above the range", features("add", 0.41, 0.5, 0.9), False),
        ("a number below the range", features("add", 0.09, 0.5, 0.9), False),
        ("at both bounds", features("add", 0.1, 1.0, 0.9), True),
        ("numbers without bounds are free", features("add", 0.2, 0.5, 99.0), True),
        ("no words", features(""), False),
    ],
)
def test_the_range_and_the_words_decide(name: str, requested: Features, is_known: bool) -> None:
    assert GUARD.is_known(requested) is is_known, name


def test_only_the_end_of_a_text_counts() -> None:
    assert GUARD.unknown_share(features("strange " * 50 + "add " * END_WORDS)) == 0.0
    assert GUARD.unknown_share(features("add " * 50 + "strange " * END_WORDS)) == 1.0
    assert GUARD.unknown_share(features("add strange add add")) == 0.25
