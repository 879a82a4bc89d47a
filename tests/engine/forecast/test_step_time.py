"""The step-time model: finds the terms it was fed with, forgets, and shrugs off hiccups."""

from __future__ import annotations

from random import Random

import pytest

from engine.forecast.step_time import StepShape, StepTimeModel


def true_seconds(shape: StepShape, slowdown: float = 1.0) -> float:
    """A machine with known costs."""
    tokens = shape.num_prefill_tokens
    return slowdown * (2e-3 + 1e-4 * shape.num_decode_seqs + 5e-5 * tokens + 1e-7 * shape.num_context_tokens)


def feed(
    model: StepTimeModel, rng: Random, *, steps: int = 400, slowdown: float = 1.0, hiccup_ratio: float = 0.0
) -> None:
    """Random steps with 5 % noise."""
    for _ in range(steps):
        shape = StepShape(rng.randrange(64), rng.choice((0, 0, rng.randrange(512))), rng.randrange(60_000))
        seconds = true_seconds(shape, slowdown) * rng.uniform(0.95, 1.05)
        model.observe(shape, seconds * (50.0 if rng.random() < hiccup_ratio else 1.0))


SHAPES = [StepShape(1, 0, 500), StepShape(64, 0, 30_000), StepShape(0, 512, 512), StepShape(16, 256, 20_000)]


@pytest.mark.parametrize("shape", SHAPES)
def test_predictions_are_close_after_some_steps(shape: StepShape) -> None:
    model = StepTimeModel()
    feed(model, Random(1))
    assert model.predict(shape) == pytest.approx(true_seconds(shape), rel=0.1)


def test_it_follows_a_machine_that_becomes_slower() -> None:
    model = StepTimeModel()
    feed(model, Random(1))
    feed(model, Random(2), steps=1500, slowdown=3.0)
    assert model.predict(SHAPES[3]) == pytest.approx(true_seconds(SHAPES[3], 3.0), rel=0.15)


def test_rare_hiccups_do_not_take_over() -> None:
    model = StepTimeModel()
    feed(model, Random(1))
    feed(model, Random(3), hiccup_ratio=0.01)
    assert model.predict(SHAPES[3]) < 1.3 * true_seconds(SHAPES[3])


def test_steps_that_only_decode_are_predicted_apart_from_those_with_chunks() -> None:
    """On a machine where a row's context costs three times as much in a step with a chunk."""
    model, rng = StepTimeModel(), Random(4)
    plain = StepShape(8, 0, 16_000)
    for _ in range(400):
        is_mixed, context = rng.random() < 0.5, rng.randrange(2_000, 30_000)
        chunk = rng.randrange(8, 256) if is_mixed else 0
        seconds = 2e-3 + 5e-5 * chunk + (3e-7 if is_mixed else 1e-7) * context
        model.observe(StepShape(8, chunk, context, chunk * 1000, int(is_mixed)), seconds)

    assert model.predict(plain) == pytest.approx(2e-3 + 1e-7 * 16_000, rel=0.02)
    mixed = StepShape(8, 100, 16_000, 100_000, 1)
    assert model.predict(mixed) == pytest.approx(2e-3 + 5e-3 + 3e-7 * 16_000, rel=0.1)


def test_steps_that_only_decode_are_predicted_from_the_others_once_there_were_none_for_long() -> None:
    model = StepTimeModel()
    for slowdown, kinds in ((1.0, (0, 64)), (3.0, (64, 128, 256))):
        for step in range(1200):
            shape = StepShape(8 + step % 3, kinds[step % len(kinds)], 1000 + 10 * (step % 50))
            model.observe(shape, true_seconds(shape, slowdown))

    assert model.predict(SHAPES[0]) > 2.0 * true_seconds(SHAPES[0])


def decode_only(model: StepTimeModel, rng: Random, *, slowdown: float = 1.0) -> None:
    """Thousands of steps of eight sequences."""
    for step in range(5_000):
        shape = StepShape(8, 0, 2_000 + step)
        model.observe(shape, true_seconds(shape, slowdown) * rng.uniform(0.95, 1.05))


def test_what_chunks_cost_is_not_forgotten_while_none_come() -> None:
    model, rng = StepTimeModel(), Random(5)
    feed(model, rng)
    decode_only(model, rng)

    plain_s = model.predict(StepShape(8, 0, 7_000))
    assert model.largest_chunk(1.4 * plain_s, 8, 7_000) == pytest.approx(0.4 * plain_s / 5e-5, rel=0.3)


def test_chunks_that_take_far_longer_than_predicted_are_made_smaller_at_once() -> None:
    model, rng = StepTimeModel(), Random(6)
    feed(model, rng)
    decode_only(model, rng)  # on a machine that has become three times as slow since it last saw a chunk
    decode_only(model, rng, slowdown=3.0)

    chunks, slowed = [], []
    for _ in range(6):
        plain_s = model.predict(StepShape(8, 0, 7_000))
        found = model.largest_chunk(1.4 * plain_s, 8, 7_000)
        chunks.append(512 if found is None else min(512, found))
        shape = StepShape(8, chunks[-1], 7_000 + chunks[-1], num_chunks=1)
        slowed.append(true_seconds(shape, 3.0) / plain_s)
        model.observe(shape, true_seconds(shape, 3.0))
    assert max(slowed[2:]) < 1.8


def test_nothing_is_predicted_before_enough_steps() -> None:
    model = StepTimeModel(min_steps=8)
    model.observe(SHAPES[0], 1.0)
    assert not model.is_fitted
    assert model.predict(SHAPES[0]) == 0.0
    assert model.largest_chunk(0.05, 1, 100) is None


def test_predictions_are_never_negative() -> None:
    model = StepTimeModel()
    for num_seqs in range(1, 40):
        model.observe(StepShape(num_seqs, 0, 100), 1.0 / num_seqs)
    for num_seqs in (0, 1, 64, 10_000):
        assert model.predict(StepShape(num_seqs, 0, 0)) >= 0.0


def test_the_largest_chunk_takes_the_time_requested() -> None:
    model = StepTimeModel()
    feed(model, Random(1))
    num_tokens = model.largest_chunk(0.02, 16, 10_000)
    assert num_tokens is not None
    assert model.predict(StepShape(16, num_tokens, 10_000)) == pytest.approx(0.02, rel=0.02)
    assert model.largest_chunk(0.0001, 16, 10_000) == 0
