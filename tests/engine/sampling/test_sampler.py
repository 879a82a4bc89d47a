"""What is chosen: the right distribution, the same for the same seed, whatever else is in the batch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.sampling.penalties import PenaltyState
from engine.sampling.sampler import Sampler, SampleRow
from tests.engine.sampling.rows import random_logits, row

SAMPLER = Sampler()
NUM_DRAWS = 20_000


def chi_square(observed: torch.Tensor, probabilities: torch.Tensor) -> float:
    expected = probabilities * observed.sum()
    return float(((observed - expected) ** 2 / expected).sum())


def draw_many(logits: torch.Tensor, **params: Any) -> torch.Tensor:
    """How often each token was drawn at NUM_DRAWS positions."""
    rows = [row(position=position, seed=77, **params) for position in range(NUM_DRAWS)]
    token_ids = SAMPLER.sample(logits.expand(NUM_DRAWS, -1), rows).token_ids
    return torch.bincount(torch.tensor(token_ids), minlength=len(logits)).double()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    logits = random_logits(1, 12, spread=1.0)[0]

    observed = draw_many(logits, temperature=temperature)

    # 11 degrees of freedom: 31.3 is exceeded once in a thousand times. The seed is fixed.
    assert chi_square(observed, torch.softmax(logits.double() / temperature, 0)) < 31.3


def test_draws_follow_the_renormalised_softmax_of_the_survivors() -> None:
    logits = random_logits(1, 100, spread=1.0)[0]
    retained = logits.topk(9).indices

    observed = draw_many(logits, top_k=9)

    assert observed.sum() == observed[retained].sum()
    assert chi_square(observed[retained], torch.softmax(logits[retained].double(), 0)) < 26.1


def test_rare_tokens_are_drawn_as_often_as_they_should() -> None:
    logits = torch.zeros(2001)
    logits[0] = 10.0
    expected = float(2000 / (2000 + torch.tensor(10.0).exp())) * NUM_DRAWS

    rare = float(draw_many(logits)[1:].sum())

    assert abs(rare - expected) < 4 * expected**0.5


def varied_rows() -> list[SampleRow]:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.3},
        {"temperature": 0.8, "top_k": 7},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 2.0, "min_p": 0.02, "num_top_logprobs": 3},
        {"temperature": 0.9, "repetition_penalty": 1.2, "presence_penalty": 0.5, "prompt": [3, 4], "output": [5, 5]},
        {"temperature": 1.0, "logit_bias": {9: 4.0}},
        {"temperature": 0.0, "min_tokens": 5, "stop_token_ids": (1,)},
    ]
    return [row(seed=n, position=n % 5, **kind) for n, kind in enumerate(kinds * 3)]


def test_a_row_gets_the_same_token_alone_and_in_any_order() -> None:
    rows = varied_rows()
    logits = random_logits(len(rows), 200)
    together = SAMPLER.sample(logits, rows)

    order = list(range(len(rows)))
    random.Random(1).shuffle(order)
    shuffled = SAMPLER.sample(logits[order], [rows[n] for n in order])
    alone = [SAMPLER.sample(logits[n : n + 1], [rows[n]]).token_ids[0] for n in range(len(rows))]

    assert shuffled.token_ids == [together.token_ids[n] for n in order]
    assert alone == together.token_ids


def test_positions_and_seeds_give_different_draws() -> None:
    flat = torch.zeros(1, 1000)
    drawn = {
        SAMPLER.sample(flat, [row(seed=seed, position=position)]).token_ids[0]
        for seed in range(5)
        for position in range(5)
    }

    assert len(drawn) > 20


def test_drafts_count_like_output_so_verifying_several_at_once_changes_nothing() -> None:
    logits = random_logits(3, 50)
    params: dict[str, Any] = {"seed": 5, "frequency_penalty": 0.9, "repetition_penalty": 1.4, "prompt": [2]}
    output = [8, 9, 8, 11]
    one_by_one = [
        SAMPLER.sample(logits[n : n + 1], [row(position=20 + n, output=output[: 2 + n], **params)]).token_ids[0]
        for n in range(3)
    ]

    at_once = SAMPLER.sample(
        logits, [row(position=20 + n, output=output[:2], drafts=output[2 : 2 + n], **params) for n in range(3)]
    )

    assert at_once.token_ids == one_by_one


def test_a_stored_penalty_state_gives_what_a_rebuilt_one_gives() -> None:
    logits = random_logits(1, 50)
    rebuilt = row(output=[1, 2, 2], prompt=[7], temperature=0.0, frequency_penalty=3.0)
    state = PenaltyState.create(rebuilt.params, [7], torch.device("cpu"))
    for length in range(4):
        retained = SampleRow(
            params=rebuilt.params,
            position=length,
            prompt_token_ids=[7],
            output_token_ids=[1, 2, 2][:length],
            penalties=state,
        )
        result = SAMPLER.sample(logits, [retained])

    assert result.token_ids == SAMPLER.sample(logits, [rebuilt]).token_ids


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0, 1.0], [2.0, 2.0, 2.0, 2.0]])

    assert SAMPLER.sample(logits, [row(temperature=0.0)] * 2).token_ids == [1, 0]


def test_a_tiny_temperature_is_greedy_and_not_nan() -> None:
    logits = torch.tensor([[0.0, 5.0, 4.999, 1.0]])

    assert SAMPLER.sample(logits, [row(temperature=1e-40)]).token_ids == [1]
    assert SAMPLER.sample(logits, [row(temperature=1e-40, top_p=0.5)]).token_ids == [1]


def test_stop_tokens_wait_for_min_tokens() -> None:
    logits = torch.tensor([[0.0, 9.0, 3.0, 8.0]])
    params: dict[str, Any] = {"temperature": 0.0, "min_tokens": 3, "stop_token_ids": (1, 3)}

    assert SAMPLER.sample(logits, [row(output=[0, 0], **params)]).token_ids == [2]
    assert SAMPLER.sample(logits, [row(output=[0], drafts=[0], **params)]).token_ids == [2]
    assert SAMPLER.sample(logits, [row(output=[0, 0, 0], **params)]).token_ids == [1]


def test_logit_bias_forces_and_forbids() -> None:
    logits = torch.tensor([[0.0, 9.0, 3.0, 8.0]])

    assert SAMPLER.sample(logits, [row(temperature=0.0, logit_bias={0: 100.0})]).token_ids == [0]
    assert SAMPLER.sample(logits, [row(temperature=0.0, logit_bias={1: -100.0})]).token_ids == [3]


def test_the_allowed_mask_is_stored_by_greedy_and_random_rows() -> None:
    allowed = torch.zeros(100, dtype=torch.bool)
    allowed[[40, 41]] = True
    rows = [row(temperature=t, seed=n, allowed=allowed) for n, t in enumerate([0.0, 1.0, 3.0, 3.0, 3.0])]

    assert set(SAMPLER.sample(random_logits(5, 100), rows).token_ids) <= {40, 41}


def test_the_callers_logits_are_left_as_they_are() -> None:
    logits = random_logits(len(varied_rows()), 200)
    before = logits.clone()

    SAMPLER.sample(logits, varied_rows())

    assert torch.equal(logits, before)


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = random_logits(3, 30)
    expected = logits.log_softmax(-1)
    rows = [
        row(temperature=0.2, top_k=2, logit_bias={4: 30.0}, num_top_logprobs=5),
        row(temperature=0.0),
        row(temperature=0.0, num_top_logprobs=0),
    ]

    result = SAMPLER.sample(logits, rows)

    first, second, third = result.logprobs
    assert result.token_ids[0] == 4
    assert first is not None
    assert first.logprob == pytest.approx(float(expected[0, 4]), abs=1e-5)
    assert [token for token, _ in first.top] == logits[0].topk(5).indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(expected[0].topk(5).values.tolist(), abs=1e-5)
    assert second is None
    assert third is not None
    assert third.logprob == pytest.approx(float(expected[2].max()), abs=1e-5)
    assert third.top == []


def test_rows_without_a_choice_are_named_and_the_others_still_served() -> None:
    logits = random_logits(4, 30)
    logits[0, 7] = float("nan")
    rows = [row(temperature=1.0), row(temperature=1.0, allowed=torch.zeros(30, dtype=torch.bool)), row(), row()]

    result = SAMPLER.sample(logits, rows)

    assert result.invalid_rows == (0, 1)
    assert result.token_ids[2:] == SAMPLER.sample(logits[2:], rows[2:]).token_ids
