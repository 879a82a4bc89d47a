"""One thread or several for one sort of step: what they take while serving decides, whatever the start was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from engine.runner.thread_choice import ThreadChoice

OfStep = Callable[[bool, int], float]
"""Seconds of a step by whether one thread computes it, and its size."""


def thread_choice(*, starts_single: bool) -> ThreadChoice:
    return ThreadChoice({1: 1.0, 2: 1.15}, 1 if starts_single else 2)


def serve(choice: ThreadChoice, seconds: OfStep, sizes: Iterable[int]) -> list[bool]:
    """Whether each step ran on one thread."""
    found = []
    for size in sizes:
        is_single = choice.next_threads(size) == 1
        found.append(is_single)
        choice.observe(size, seconds(is_single, size))
    return found


def threads_that_save(ratio: float) -> OfStep:
    return lambda is_single, size: ratio * size if is_single else 1.0 * size


@pytest.mark.parametrize("starts_single", [True, False])
@pytest.mark.parametrize(("saved", "expected"), [(2.0, False), (1.3, False), (1.0, True), (0.5, True)])
def test_whatever_the_start_found_the_better_number_is_taken_in_the_end(
    starts_single: bool, saved: float, expected: bool
) -> None:
    choice = thread_choice(starts_single=starts_single)
    serve(choice, threads_that_save(saved), [4] * 300)
    assert (choice.num_threads == 1) is expected
    assert sum(serve(choice, threads_that_save(saved), [4] * 4000)) == pytest.approx(4000 * expected, abs=60)


@pytest.mark.parametrize("starts_single", [True, False])
def test_what_saves_neither_much_nor_little_stays_as_it_is(starts_single: bool) -> None:
    choice = thread_choice(starts_single=starts_single)
    serve(choice, threads_that_save(1.15), [4] * 3000)
    assert (choice.num_threads == 1) is starts_single


def test_a_core_that_the_front_takes_while_serving_is_given_up() -> None:
    choice = thread_choice(starts_single=False)
    serve(choice, threads_that_save(1.8), [8] * 5000)
    assert choice.num_threads == 2
    serve(choice, threads_that_save(0.7), [8] * 5000)
    assert choice.num_threads == 1


def test_hiccups_of_the_machine_do_not_decide() -> None:
    choice, rng = thread_choice(starts_single=False), random.Random(1)

    def seconds(is_single: bool, size: int) -> float:
        return threads_that_save(1.5)(is_single, size) * (10.0 if rng.random() < 0.1 else 1.0)

    found = serve(choice, seconds, [8] * 10_000)
    assert sum(found) < 0.02 * len(found)


def test_steps_of_other_sizes_are_not_compared() -> None:
    choice = thread_choice(starts_single=False)
    serve(choice, lambda is_single, size: 1.0 * size, [5, 8] * 500)
    assert choice.num_threads == 2, "a smaller step is no quicker way"
    serve(choice, threads_that_save(1.0), [5, 5, 5, 5, 5, 5, 8, 8] * 100)
    assert choice.num_threads == 1


@pytest.mark.parametrize("first", [1, 2, 4])
@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_the_fastest_of_several_numbers_is_found_from_any_start(first: int, fastest: int) -> None:
    choice = ThreadChoice({1: 1.0, 2: 1.0, 4: 1.0}, first)
    for _ in range(800):
        choice.observe(4, 0.1 if choice.next_threads(4) == fastest else 0.3)
    assert choice.num_threads == fastest


def test_a_slow_number_is_tried_rarely_once_it_is_known() -> None:
    choice = thread_choice(starts_single=False)
    serve(choice, threads_that_save(6.0), [4] * 500)
    assert sum(serve(choice, threads_that_save(6.0), [4] * 4000)) <= 22
