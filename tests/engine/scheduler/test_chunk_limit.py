"""Prompt tokens beside decoding sequences: as many as keep the next tokens in time."""

from __future__ import annotations

import pytest

from engine.forecast.step_time import StepShape, StepTimeModel
from engine.scheduler.chunk_limit import ChunkLimit


def limit(
    *,
    plain_s: float = 0.01,
    token_s: float = 0.001,
    chunk_s: float = 0.0,
    itl_target_s: float = 0.05,
    slack_ratio: float = 1.5,
) -> ChunkLimit:
    """Return the limit on a machine whose steps take `plain_s`, `chunk_s` with prompts and `token_s` for each token."""
    model = StepTimeModel()
    for num_tokens in (0, 4, 8, 16, 32, 64) * 8:
        chunks = 1 if num_tokens else 0
        model.observe(StepShape(2, num_tokens, 0, num_chunks=chunks), plain_s + chunk_s * chunks + token_s * num_tokens)
    return ChunkLimit(model, itl_target_s=itl_target_s, slack_ratio=slack_ratio)


def test_without_decoding_rows_a_chunk_is_not_limited() -> None:
    assert limit().tokens(0, 0, 0, is_urgent=False) is None


def test_without_measurements_a_chunk_is_not_limited() -> None:
    assert ChunkLimit(StepTimeModel(), itl_target_s=0.05, slack_ratio=1.5).tokens(2, 0, 0, is_urgent=True) is None


@pytest.mark.parametrize(
    ("is_urgent", "is_crowded", "num_tokens"),
    [(False, False, 5), (False, True, 10), (True, False, 40), (True, True, 40)],
)
def test_an_urgent_chunk_fills_the_target_and_a_patient_one_the_slack(
    is_urgent: bool, is_crowded: bool, num_tokens: int
) -> None:
    found = limit().tokens(2, 0, 0, is_urgent=is_urgent, is_crowded=is_crowded)
    assert found == pytest.approx(num_tokens, abs=1)


def test_slack_never_exceeds_the_target() -> None:
    patient = limit(slack_ratio=9.0).tokens(2, 0, 0, is_urgent=False)
    assert patient == limit().tokens(2, 0, 0, is_urgent=True)


def test_where_plain_steps_exceed_the_target_already_they_grow_by_a_quarter() -> None:
    assert limit(plain_s=0.1).tokens(2, 0, 0, is_urgent=True) == pytest.approx(25, abs=2)


def test_a_prompt_gets_on_however_slow_the_machine_is() -> None:
    assert limit(plain_s=0.05, token_s=1.0, itl_target_s=0.01).tokens(2, 0, 0, is_urgent=False) == 4


@pytest.mark.parametrize(("chunk_s", "num_tokens"), [(0.0, 20), (0.0015, 5), (0.016, 160), (0.04, 64)])
def test_a_chunk_whose_fixed_cost_breaks_the_limit_has_as_much_time_for_tokens(chunk_s: float, num_tokens: int) -> None:
    # Captured decode steps of 4 ms; chunks run uncaptured.
    found = limit(plain_s=0.004, token_s=0.0001, chunk_s=chunk_s).tokens(2, 0, 0, is_urgent=False)

    assert found == pytest.approx(num_tokens, abs=6)
