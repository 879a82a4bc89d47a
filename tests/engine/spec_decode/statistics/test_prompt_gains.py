"""Prompts of which rounds make nothing quicker are told from others by their words."""

from __future__ import annotations

import random

from engine.protocol import Add, SamplingParams
from engine.spec_decode.statistics.prompt_gains import PromptGains
from engine.step.sequence import Sequence

TEMPLATE = [1, 2, 3, 4, 5]
SUMS, LISTS = range(100, 130), range(200, 230)


def prompt(token_ids: list[int]) -> Sequence:
    add = Add(seq_id=1, prompt_token_ids=token_ids, params=SamplingParams(max_tokens=9, temperature=0.0))
    return Sequence.from_add(add, arrival_index=1, received_at=0.0)


def of(words: range, rng: random.Random) -> Sequence:
    """Words of a kind between those that all prompts have."""
    return prompt(TEMPLATE + rng.sample(words, 12) + TEMPLATE)


def taught(gain_of_sums: float, gain_of_lists: float, num_prompts: int = 60) -> PromptGains:
    gains, rng = PromptGains(), random.Random(1)
    for _ in range(num_prompts):
        gains.observe(of(SUMS, rng), gain_of_sums)
        gains.observe(of(LISTS, rng), gain_of_lists)
    return gains


def test_of_a_prompt_nobody_knows_the_best_is_hoped() -> None:
    assert PromptGains().allow([prompt([9, 9, 9])])


def test_kinds_are_told_apart_by_prompts_that_were_never_seen() -> None:
    gains, rng = taught(-0.4, 2.0), random.Random(2)
    for _ in range(20):
        assert gains.expected(of(SUMS, rng)) < 0.0
        assert gains.expected(of(LISTS, rng)) > 1.0


def test_what_is_not_worth_it_is_tried_once_in_a_while() -> None:
    gains, rng = taught(-0.4, 2.0), random.Random(3)
    allowed = [gains.allow([of(SUMS, rng)]) for _ in range(160)]
    assert sum(allowed) == 10


def test_one_prompt_that_gains_is_enough_for_all_that_are_computed_with_it() -> None:
    gains, rng = taught(-0.4, 2.0), random.Random(4)
    assert all(gains.allow([of(SUMS, rng), of(LISTS, rng)]) for _ in range(5))


def test_a_kind_that_comes_to_gain_is_found_out() -> None:
    gains, rng = taught(-0.4, 2.0), random.Random(5)
    for _ in range(16 * 20):
        seq = of(SUMS, rng)
        if gains.allow([seq]):
            gains.observe(seq, 1.5)
    assert gains.allow([of(SUMS, rng)])


def test_a_hiccup_of_the_machine_does_not_decide() -> None:
    gains, rng = taught(1.0, 2.0), random.Random(6)
    gains.observe(of(SUMS, rng), -500.0)
    assert gains.allow([of(SUMS, rng)])


def test_only_the_newest_tokens_of_a_long_prompt_count() -> None:
    gains, rng = taught(-0.4, 2.0), random.Random(7)
    question = rng.sample(LISTS, 20) + [LISTS[0]] * 44
    assert gains.expected(prompt(question)) == gains.expected(prompt([*SUMS] * 40 + question))
