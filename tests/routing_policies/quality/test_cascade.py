"""When a small model's answer that has begun is gone on with, and when it is left."""

from __future__ import annotations

import pytest

from routing_policies.quality.cascade import Answer, Inquiry
from routing_policies.quality.confidence import TokenOdds
from tests.routing_policies.quality.test_predictor import trained


def odds(*logprobs: float) -> list[TokenOdds]:
    return [TokenOdds(logprob, 1.0) for logprob in logprobs]


@pytest.mark.parametrize(
    ("name", "logprobs", "is_whole", "expected"),
    [
        ("neutral: nothing came yet", (), False, None),
        ("neutral: neither sure nor hopeless", (-0.2,), False, None),
        ("sure at once", (-0.01,), False, "go_on"),
        ("hopeless at once", (-2.0,), False, "hand_over"),
        ("one doubt among sure ones", (-0.01, -0.2, -0.01), False, None),
        ("good enough when it must be decided", (-0.1, -0.2, -0.1, -0.1), False, "go_on"),
        ("not good enough when it must be decided", (-0.1, -0.3, -0.1, -0.1), False, "hand_over"),
        ("good enough and over", (-0.2,), True, "go_on"),
        ("not good enough and over", (-0.4,), True, "hand_over"),
        ("over without a token", (), True, "hand_over"),
    ],
)
def test_without_coefficients_the_least_likely_token_speaks(
    name: str, logprobs: tuple[float, ...], is_whole: bool, expected: Answer | None
) -> None:
    assert Inquiry(0.8, 4).call(odds(*logprobs), is_whole=is_whole) == expected, name


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
