"""Several ways to compute one sort of step: what they take while serving decides, whatever the start was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from engine.runner.way_choice import WayChoice

OfStep = Callable[[bool, int], float]
"""Seconds of a step by whether one thread computes it, and its size."""


def thread_choice(*, starts_single: bool) -> WayChoice[int]:
    return WayChoice({1: 1.0, 2: 1.15}, 1 if starts_single else 2)


def serve(choice: WayChoice[int], seconds: OfStep, sizes: Iterable[int]) -> list[bool]:
    """Whether each step ran on one thread."""
    found = []
    for size in sizes:
        is_single = choice.next_way(size) == 1
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
    choice = thread_choice(starts_single=starts_single)
    serve(choice, threads_that_save(saved), [4] * 300)
    assert (choice.way == 1) is expected
    assert sum(serve(choice, threads_that_save(saved), [4] * 4000)) == pytest.approx(4000 * expected, abs=60)


@pytest.mark.parametrize("starts_single", [True, False])
def test_what_saves_neither_much_nor_little_stays_as_it_is(starts_single: bool) -> None:
    choice = thread_choice(starts_single=starts_single)
    serve(choice, threads_that_save(1.15), [4] * 3000)
    assert (choice.way == 1) is starts_single


def test_a_core_that_the_front_takes_while_serving_is_given_up() -> None:
    choice = thread_choice(starts_single=False)
    serve(choice, threads_that_save(1.8), [8] * 5000)
    assert choice.way == 2
    serve(choice, threads_that_save(0.7), [8] * 5000)
    assert choice.way == 1


def test_hiccups_of_the_machine_do_not_decide() -> None:
    choice, rng = thread_choice(starts_single=False), random.Random(1)

    def seconds(is_single: bool, size: int) -> float:
        return threads_that_save(1.5)(is_single, size) * (10.0 if rng.random() < 0.1 else 1.0)

    found = serve(choice, seconds, [8] * 10_000)
    assert sum(found) < 0.02 * len(found)


def test_steps_of_other_sizes_are_not_compared() -> None:
    choice = thread_choice(starts_single=False)
    serve(choice, lambda is_single, size: 1.0 * size, [5, 8] * 500)
    assert choice.way == 2, "a smaller step is no quicker way"
    serve(choice, threads_that_save(1.0), [5, 5, 5, 5, 5, 5, 8, 8] * 100)
    assert choice.way == 1


def serve_prompts(choice: WayChoice[str], token_s: dict[str, float], sizes: Iterable[int]) -> list[str]:
    """The way of each step, whose duration is in proportion to its tokens."""
    found = []
    for size in sizes:
        way = choice.next_way(size)
        found.append(way)
        choice.observe(size, token_s[way] * size)
    return found


WAYS = {"torch": 1.0, "vectors": 1.0, "matrix unit": 1.0}


@pytest.mark.parametrize("first", list(WAYS))
@pytest.mark.parametrize("fastest", list(WAYS))
def test_the_fastest_of_several_ways_is_found_from_any_start(first: str, fastest: str) -> None:
    choice: WayChoice[str] = WayChoice(WAYS, first, tolerance=1.5)
    token_s = dict.fromkeys(WAYS, 0.0003) | {fastest: 0.0001}
    sizes = [100, 90, 110, 80] * 200
    serve_prompts(choice, token_s, sizes)
    assert choice.way == fastest
    assert serve_prompts(choice, token_s, sizes).count(fastest) > 0.97 * len(sizes)


def test_sizes_within_the_tolerance_are_compared_by_their_unit() -> None:
    choice: WayChoice[str] = WayChoice({"torch": 1.0, "vectors": 1.0}, "torch", tolerance=2.0)
    serve_prompts(choice, {"torch": 0.001, "vectors": 0.001}, [100, 60] * 500)
    assert choice.way == "torch", "a smaller step is no quicker way"


def test_a_long_step_is_no_trial_unless_it_leads_back_to_the_first_way() -> None:
    choice: WayChoice[str] = WayChoice({"torch": 1.0, "vectors": 1.0}, "vectors", tolerance=1.5, max_trial_s=0.05)
    assert set(serve_prompts(choice, {"torch": 0.01, "vectors": 0.001}, [512] * 2000)) == {"vectors"}
    serve_prompts(choice, {"torch": 0.0001, "vectors": 0.0004}, [100] * 1000)
    assert choice.way == "torch"
    serve_prompts(choice, {"torch": 0.01, "vectors": 0.001}, [512] * 3000)
    assert choice.way == "vectors"


def test_a_slow_way_is_tried_rarely_once_it_is_known() -> None:
    choice: WayChoice[str] = WayChoice({"torch": 1.0, "vectors": 1.0}, "vectors", tolerance=1.5)
    token_s = {"torch": 0.0006, "vectors": 0.0001}
    serve_prompts(choice, token_s, [100] * 500)
    assert serve_prompts(choice, token_s, [100] * 4000).count("torch") <= 22
