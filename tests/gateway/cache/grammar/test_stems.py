"""Forms of a word, and words that only look like one."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.stems import are_variants, stem_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("stop", "stopped"),
        ("stop", "stops"),
        ("bake", "baking"),
        ("city", "cities"),
        ("box", "boxes"),
        ("make", "making"),
    ],
)
def test_forms_of_a_word_share_a_stem(one: str, other: str) -> None:
    assert stem_of(one) == stem_of(other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("improve", "improvement", True),
        ("develop", "developer", True),
        ("receive", "recieve", True),
        ("seperate", "separate", False),
        ("employer", "employee", False),
        ("import", "export", False),
        ("hot", "hop", False),
        ("careful", "careless", False),
        ("mentor", "mental", False),
    ],
)
def test_variants_are_other_endings_or_slips(one: str, other: str, expected: bool) -> None:
    assert are_variants(one, other) is expected
    assert are_variants(other, one) is expected
