"""Recognition of kinds: a prompt has to be typical of its kind, by its words and by those that nobody knows."""

from __future__ import annotations

import msgspec
import pytest

from routing_policies.quality.hashing import hash_of_word, hashed_features
from tests.routing_policies.quality.recognizers import RECOGNIZER
from tests.routing_policies.quality.test_head import features

KNOWN = frozenset({"add", "king", "and"})


@pytest.mark.parametrize(
    ("words", "kind", "shift"),
    [
        ("add and", "sums", 1.5),
        ("king and", None, 0.0),  # 0.88 is less than a typical tale has
        ("add king", None, 0.0),
        ("add zzq wxv", None, 0.0),
        ("", None, 0.0),
    ],
)
def test_a_kind_is_recognized_where_it_is_sure_and_the_words_are_known(
    words: str, kind: str | None, shift: float
) -> None:
    found = RECOGNIZER.recognized(features(*words.split()), KNOWN)
    assert (None if found is None else RECOGNIZER.kinds[found]) == kind
    assert RECOGNIZER.shift(features(*words.split()), KNOWN) == shift


def test_hashed_words_are_recognized_like_words() -> None:
    hashed = msgspec.structs.replace(
        RECOGNIZER, words={hash_of_word(word): line for word, line in RECOGNIZER.words.items()}
    )
    assert hashed.recognized(hashed_features(features("add", "and")), frozenset(map(hash_of_word, KNOWN))) == 0
