"""Texts for literals, against trying all short texts of a small alphabet."""

from __future__ import annotations

import random
from itertools import product

import pytest

from routing_policies.proof.texts import TextAtom, TextDomain, TextKind, text_for

FREE = TextDomain(max_chars=2_000, is_header=False)
HEADER = TextDomain(max_chars=100, is_header=True)
SHORT = ["".join(chars) for size in range(6) for chars in product("ab~", repeat=size)]


def atom(kind: TextKind, *constants: str) -> TextAtom:
    tests = {
        "in": lambda value: value in constants,
        "prefix": lambda value: value.startswith(constants[0]),
        "suffix": lambda value: value.endswith(constants[0]),
        "part": lambda value: constants[0] in value,
    }
    return TextAtom(kind=kind, constants=constants, holds=tests[kind])


def size(low: int, high: int = 10**9) -> TextAtom:
    return TextAtom(kind="size", bounds=(low, high), holds=lambda value: low <= len(value) <= high)


def test_literals_without_lengths_are_solved_exactly() -> None:
    rng = random.Random(5)
    kinds: tuple[TextKind, ...] = ("in", "prefix", "suffix", "part")
    counts = {True: 0, False: 0}
    for _ in range(3_000):
        literals = [
            (atom(rng.choice(kinds), "".join(rng.choices("ab", k=rng.randint(0, 3)))), rng.random() < 0.5)
            for _ in range(rng.randint(1, 4))
        ]
        answer = text_for(literals, FREE)
        assert answer.is_exact
        if answer.value is None:
            assert not any(all(one.holds(text) is wanted for one, wanted in literals) for text in SHORT), literals
        else:
            assert all(one.holds(answer.value) is wanted for one, wanted in literals)
        counts[answer.value is None] += 1
    assert min(counts.values()) > 300


@pytest.mark.parametrize(
    ("literals", "value", "is_exact"),
    [
        ([(size(0, 3), True), (atom("prefix", "ab"), True), (atom("suffix", "bc"), True)], "abc", True),
        ([(size(0, 2), True), (atom("part", "abc"), True)], None, True),
        ([(size(5), True), (size(0, 4), True)], None, True),
        ([(size(4), True), (atom("prefix", "a"), True)], "a~~~", True),
        ([(size(2_001), True)], None, True),
        ([(size(0, 3), True), (atom("prefix", "aab"), True), (atom("part", "abb"), True)], None, False),
    ],
)
def test_lengths_are_respected_or_the_answer_is_not_exact(
    literals: list[tuple[TextAtom, bool]], value: str | None, is_exact: bool
) -> None:
    answer = text_for(literals, FREE)
    assert (answer.value, answer.is_exact) == (value, is_exact)


def test_a_pattern_is_met_by_a_sample_or_left_open() -> None:
    import re

    def pattern(text: str) -> TextAtom:
        return TextAtom(kind="pattern", constants=(text,), holds=lambda value: re.search(text, value) is not None)

    found = text_for([(pattern("^(invoice|bill) [0-9]+$"), True), (atom("part", "7"), False)], FREE)
    assert found.value == "invoice 0"
    assert text_for([(pattern("a"), True), (atom("part", "a"), False)], FREE).value is None
    assert not text_for([(pattern("a"), True), (atom("part", "a"), False)], FREE).is_exact
    assert text_for([(pattern("a"), True), (atom("in", "b", "ca"), True)], FREE).value == "ca"


@pytest.mark.parametrize("value", ["a\nb", " a", "a\x00"])
def test_a_header_has_no_control_characters_and_no_outer_blanks(value: str) -> None:
    assert text_for([(atom("in", value), True)], HEADER).value is None
    assert text_for([(atom("in", value), True)], HEADER).is_exact
    assert text_for([(atom("in", value), True)], FREE).value == value
