"""Samples of patterns."""

from __future__ import annotations

import re

import pytest

from routing_policies.proof.patterns import samples_of


@pytest.mark.parametrize(
    "pattern",
    [
        "abc", "^a.c$", "(?i)invoice", "(ab|cd)+e?", r"\d+ \w+", "[a-z]+[^a]", r"\bcode\b", "x*y", "(?:a|b)c", r"a\.b",
        "[]a]", r"[\d]+", "a|b|c", "",
    ],
)  # fmt: skip
def test_a_pattern_matches_one_of_its_samples(pattern: str) -> None:
    assert any(re.search(pattern, sample) for sample in samples_of(pattern))


@pytest.mark.parametrize("pattern", ["(", "[", "\\", "(?", "a)", "(?P<n>a"])
def test_a_broken_pattern_has_samples_all_the_same(pattern: str) -> None:
    assert all(isinstance(sample, str) for sample in samples_of(pattern))


def test_samples_are_few() -> None:
    assert len(samples_of("(a|b)" * 40)) <= 24
