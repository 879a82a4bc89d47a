"""The engine given in events ends every job at the very instant at which the one given in steps does."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.engines.modelled_engine import EngineModel, EngineShape, Job
from loadtests.engines.virtual_engine import VirtualEngine, VirtualJob

SHAPE = EngineShape(
    max_num_seqs=3, step_fixed_ms=10.0, sequence_us=1000.0, prefill_us=100.0, step_tokens=50, long_prompt_tokens=60
)
Arrivals = list[tuple[float, int, int]]
"""(instant, prompt tokens, output tokens)."""


class Handle:
    def __init__(self) -> None:
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class Calendar:
    """Timers in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Handle, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        handle = Handle()
        heapq.heappush(self._due, (when, next(self._order), handle, callback, args))
        return handle

    def run(self) -> None:
        while self._due:
            when, _, handle, callback, args = heapq.heappop(self._due)
            if not handle.is_off:
                self.now = max(self.now, when)
                callback(*args)


def in_events(arrivals: Arrivals) -> tuple[list[tuple[float, float]], VirtualEngine]:
    """(first token, last token) of each arrival."""
    calendar = Calendar()
    engine = VirtualEngine(SHAPE, calendar)
    times = [[0.0, 0.0] for _ in arrivals]

    def add(index: int) -> None:
        _, prompt, output = arrivals[index]

        def on_first() -> None:
            times[index][0] = calendar.now
            if output == 1:
                times[index][1] = calendar.now

        def on_last() -> None:
            times[index][1] = calendar.now

        engine.add(VirtualJob(prompt, output, on_first=on_first, on_last=on_last))

    for index, (at, _, _) in enumerate(arrivals):
        calendar.call_at(at, add, index)
    calendar.run()
    return [(first, last) for first, last in times], engine


def in_steps(arrivals: Arrivals) -> tuple[list[tuple[float, float]], EngineModel]:
    """The same from the step-by-step model."""
    model = EngineModel(SHAPE)
    jobs = [Job(prompt_tokens=prompt, output_tokens=output) for _, prompt, output in arrivals]
    pending = sorted(range(len(arrivals)), key=lambda index: arrivals[index][0])
    times = [[0.0, 0.0] for _ in arrivals]
    now = 0.0
    while True:
        while pending and arrivals[pending[0]][0] <= now + 1e-12:
            model.add(jobs[pending.pop(0)])
        step = model.begin()
        if step is None:
            if not pending:
                break
            now = arrivals[pending[0]][0]
            continue
        now += step.seconds
        for job in model.finish(step):
            index = jobs.index(job)
            times[index][0] = times[index][0] or now
            if job.is_done:
                times[index][1] = now
    return [(first, last) for first, last in times], model


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.4), st.integers(1, 120), st.integers(1, 12)), min_size=1, max_size=10))
def test_events_and_steps_agree_on_every_first_and_last_token(arrivals: Arrivals) -> None:
    # Instants that fall on the end of a step could be taken either way; a tenth of a microsecond apart they cannot.
    arrivals = [(at + 1.7e-7 * (number + 1), prompt, output) for number, (at, prompt, output) in enumerate(arrivals)]
    events, engine = in_events(arrivals)
    steps, model = in_steps(arrivals)
    for notified, expected in zip(events, steps, strict=True):
        assert notified == pytest.approx(expected, abs=1e-6)
    assert engine.model.num_made == model.num_made
    assert (engine.model.num_running, engine.model.num_waiting) == (0, 0)


def test_a_removed_job_frees_its_row_and_its_tokens_count_as_wasted() -> None:
    calendar = Calendar()
    engine = VirtualEngine(SHAPE, calendar)
    ended: list[float] = []
    job = VirtualJob(10, 1000, on_first=lambda: None, on_last=lambda: ended.append(calendar.now))
    engine.add(job)
    calendar.call_at(1.0, engine.remove, job)
    calendar.run()
    assert ended == []
    assert engine.model.num_running == 0
    per_step_s = SHAPE.step_s(1, 0)
    assert engine.num_wasted == pytest.approx(1 + (1.0 - SHAPE.step_s(0, 10)) / per_step_s, abs=1.0)
