"""What was found once stays found: every stored input again, and a short run of mutations from a fixed seed."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz.corpus import TARGET_NAMES, corpus_of
from tests.fuzz.mutation import mutants
from tests.fuzz.targets import TARGETS, TOKENS, run_target

NUM_MUTANTS = 250
SLOW = {"grammar": 40, "tokenizer": 120, "gguf": 120}
"""Targets of which one input takes milliseconds."""


def test_every_target_has_a_corpus_of_a_few_kilobytes() -> None:
    assert set(TARGET_NAMES) == set(TARGETS)
    for name in TARGETS:
        assert 0 < sum(map(len, corpus_of(name).values())) <= 24 * 1024, name


@pytest.mark.parametrize("name", TARGETS)
def test_stored_inputs(name: str) -> None:
    for data in corpus_of(name).values():
        run_target(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_near_the_stored_ones(name: str) -> None:
    corpus = list(corpus_of(name).values())
    for data in islice(mutants(corpus, f"{name}:1", TOKENS.get(name, ())), SLOW.get(name, NUM_MUTANTS)):
        run_target(name, data)
