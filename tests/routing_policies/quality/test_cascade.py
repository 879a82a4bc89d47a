"""When a small model's answer that has begun is gone on with, and when it is left."""

from __future__ import annotations

from math import log

import pytest

from routing_policies.quality.cascade import Answer, Inquiry, default_mean_probability
from routing_policies.quality.confidence import TokenOdds
from tests.routing_policies.quality.test_predictor import trained


def odds(*logprobs: float) -> list[TokenOdds]:
    return [TokenOdds(logprob, 1.0) for logprob in logprobs]


@pytest.mark.parametrize(
    ("name", "logprobs", "is_whole", "expected"),
    [
        ("nothing came yet", (), False, None),
        ("one sure token tells little", (-0.001,), False, None),
        ("one hopeless token tells little", (-9.0,), False, None),
        ("sure for some tokens", (-0.01,) * 8, False, "go_on"),
        ("hopeless for some tokens", (-4.0,) * 8, False, "hand_over"),
        ("neither sure nor hopeless", (-0.5,) * 8, False, None),
        ("good enough when it must be decided", (-0.6,) * 12, False, "go_on"),
        ("one doubt among sure ones", (*(-0.1,) * 11, -4.0), False, "go_on"),
        ("not good enough when it must be decided", (-0.7,) * 12, False, "hand_over"),
        ("good enough and over", (-0.6,), True, "go_on"),
        ("not good enough and over", (-0.7,), True, "hand_over"),
        ("over without a token", (), True, "hand_over"),
    ],
)
def test_without_coefficients_the_mean_probability_of_the_tokens_decides(
    name: str, logprobs: tuple[float, ...], is_whole: bool, expected: Answer | None
) -> None:
    assert Inquiry(0.8, 12).decide(odds(*logprobs), is_whole=is_whole) == expected, name


@pytest.mark.parametrize("first_tokens", [1, 2, 4])
def test_a_route_that_waits_for_fewer_tokens_decides_by_those(first_tokens: int) -> None:
    inquiry = Inquiry(0.8, first_tokens)
    assert inquiry.decide(odds(*(-0.3,) * first_tokens), is_whole=False) == "go_on"
    assert inquiry.decide(odds(*(-2.0,) * first_tokens), is_whole=False) == "hand_over"


@pytest.mark.parametrize("min_quality", [0.01, 0.5, 0.8, 0.935, 1.0])
def test_the_stated_mean_probability_is_the_one_that_decides(min_quality: float) -> None:
    border = default_mean_probability(min_quality)
    for factor, expected in ((1.001, "go_on"), (0.999, "hand_over")):
        mean = min(0.0, log(border * factor))
        if border * factor <= 1.0:
            assert Inquiry(min_quality, 4).decide(odds(*(mean,) * 4), is_whole=False) == expected
    assert default_mean_probability(0.0) == 0.0


def test_with_coefficients_the_prompt_counts_as_well() -> None:
    checkpoints = trained().checkpoints
    hopeful, hopeless = (Inquiry(0.8, 16, prior, checkpoints) for prior in (3.0, -3.0))
    tokens = [TokenOdds(-0.1, 2.9)] * 2
    assert (hopeful.probability(tokens, is_whole=False) or 0) > (
        hopeless.probability(tokens, is_whole=False) or 1
    ) + 0.3
    assert hopeful.probability([], is_whole=False) is None


def test_an_answer_that_ends_between_two_checkpoints_is_evaluated_by_the_next_one() -> None:
    inquiry = Inquiry(0.8, 16, 2.0, trained().checkpoints)
    three = [TokenOdds(-0.01, 3.0)] * 3
    by_four = inquiry.checkpoints[2]
    assert by_four.num_tokens == 4
    assert inquiry.probability(three, is_whole=True) == by_four.probability(2.0, three, is_whole=True)
    assert inquiry.decide(three, is_whole=True) == "go_on"


def test_an_answer_that_ends_at_a_checkpoint_is_evaluated_by_one_that_knows_answers_that_ended() -> None:
    inquiry = Inquiry(0.8, 16, 2.0, trained().checkpoints)
    two = [TokenOdds(-0.01, 3.0)] * 2
    by_two, by_four = inquiry.checkpoints[1:3]
    assert (by_two.num_tokens, by_four.num_tokens) == (2, 4)
    assert inquiry.probability(two, is_whole=False) == by_two.probability(2.0, two, is_whole=False)
    assert inquiry.probability(two, is_whole=True) == by_four.probability(2.0, two, is_whole=True)
