"""One thread or all: what steps take while they serve decides, whatever the start found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from engine.runner.thread_choice import ThreadChoice

OfStep = Callable[[bool, int], float]
"""Seconds of a step by whether one thread computes it, and its size."""


def serve(choice: ThreadChoice, seconds: OfStep, sizes: Iterable[int]) -> list[bool]:
    """Whether each step ran on one thread."""
    found = []
    for size in sizes:
        is_single = choice.next_is_single(size)
        found.append(is_single)
        choice.observe(size, seconds(is_single, size))
    return found


def threads_that_save(ratio: float) -> OfStep:
    return lambda is_single, size: ratio * size if is_single else 1.0 * size


@pytest.mark.parametrize("starts_single", [True, False])
@pytest.mark.parametrize(("saved", "expected"), [(2.0, False), (1.3, False), (1.0, True), (0.5, True)])
def test_whatever_the_start_found_the_better_way_is_taken_in_the_end(
    starts_single: bool, saved: float, expected: bool
) -> None:
    choice = ThreadChoice(is_single=starts_single)
    serve(choice, threads_that_save(saved), [4] * 300)
    assert choice.is_single is expected
    assert sum(serve(choice, threads_that_save(saved), [4] * 4000)) == pytest.approx(4000 * expected, abs=60)


@pytest.mark.parametrize("starts_single", [True, False])
def test_what_saves_neither_much_nor_little_stays_as_it_is(starts_single: bool) -> None:
    choice = ThreadChoice(is_single=starts_single)
    serve(choice, threads_that_save(1.15), [4] * 3000)
    assert choice.is_single is starts_single


def test_a_core_that_the_front_takes_while_serving_is_given_up() -> None:
    choice = ThreadChoice(is_single=False)
    serve(choice, threads_that_save(1.8), [8] * 5000)
    assert not choice.is_single
    serve(choice, threads_that_save(0.7), [8] * 5000)
    assert choice.is_single


def test_hiccups_of_the_machine_do_not_decide() -> None:
    choice, chance = ThreadChoice(is_single=False), random.Random(1)

    def seconds(is_single: bool, size: int) -> float:
        return threads_that_save(1.5)(is_single, size) * (10.0 if chance.random() < 0.1 else 1.0)

    found = serve(choice, seconds, [8] * 10_000)
    assert sum(found) < 0.02 * len(found)


def test_steps_of_other_sizes_are_not_compared() -> None:
    choice = ThreadChoice(is_single=False)
    serve(choice, lambda is_single, size: 1.0 * size, [5, 8] * 500)
    assert not choice.is_single, "a smaller step is no quicker way"
    serve(choice, threads_that_save(1.0), [5, 5, 5, 5, 5, 5, 8, 8] * 100)
    assert choice.is_single
