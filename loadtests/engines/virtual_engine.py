"""The modelled engine on a clock that jumps: first token and last token of each job, at their instants.

A run of steps in which nothing begins and nothing ends is one timer, so that a hundred engines can be simulated faster
than they would run. A test holds it to the model step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from loadtests.engines.modelled_engine import EngineModel, EngineShape, Job, Step


class Timer(Protocol):
    """A callback that may still be called off."""

    def cancel(self) -> None:
        """Do not call."""


class Schedule(Protocol):
    """The part of an event loop that an engine needs."""

    def time(self) -> float:
        """Return the present instant."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back at an instant."""


@dataclass(slots=True, eq=False, kw_only=True)
class VirtualJob(Job):
    """A job whose owner is called with its first and with its last token, at these instants."""

    on_first: Callable[[], None]
    on_last: Callable[[], None]
    """Not called for a job of one token."""


class VirtualEngine:
    """Drives the model on a schedule."""

    def __init__(self, shape: EngineShape, schedule: Schedule) -> None:
        self.model = EngineModel(shape)
        self.num_wasted = 0
        """Tokens made for jobs that were removed before their end."""
        self._schedule = schedule
        self._step: Step | None = None
        self._timer: Timer | None = None
        self._began_at = 0.0
        self._num_planned = 0

    @property
    def stepped_at(self) -> float:
        """Return when the last step ended that jobs were decoded in."""
        if self._step is None or not self._step.decoding:
            return self._began_at
        return self._began_at + self._steps_done() * self._step.seconds

    def add(self, job: VirtualJob) -> None:
        """Take a job into the queue; it is checked when the step under way has ended."""
        self.model.add(job)
        if self._step is None:
            self._began_at = self._schedule.time()
            self._begin()
        elif self.model.num_running < self.model.shape.max_num_seqs:  # else nothing changes before a job ends
            self._shorten()

    def remove(self, job: VirtualJob) -> None:
        """Forget a job, wherever it is; one that has ended is not there any more."""
        if job not in self.model:
            return
        if self._step is not None and job in self._step.decoding:
            self.model.num_made += self._steps_done()
            job.num_made += self._steps_done()
        self.num_wasted += job.num_made
        self.model.remove(job)
        if job.num_read:
            self._shorten()

    def _steps_done(self) -> int:
        """Return the steps of the run under way that have ended."""
        if self._step is None or self._step.seconds <= 0:
            return 0
        elapsed = (self._schedule.time() - self._began_at) / self._step.seconds
        return min(self._num_planned, math.floor(elapsed + 1e-9))

    def _shorten(self) -> None:
        """End the run under way with the step that is running now."""
        if self._step is None or self._timer is None or self._num_planned == 1:
            return
        elapsed = (self._schedule.time() - self._began_at) / self._step.seconds
        steps = max(1, math.ceil(elapsed - 1e-9))
        if steps < self._num_planned:
            self._timer.cancel()
            self._plan(self._step, steps)

    def _begin(self) -> None:
        self._step = self.model.begin()
        if self._step is not None:
            self._plan(self._step, self._step.num_alike)

    def _plan(self, step: Step, num_steps: int) -> None:
        self._num_planned = num_steps
        self._timer = self._schedule.call_at(self._began_at + num_steps * step.seconds, self._finish)

    def _finish(self) -> None:
        step, num_steps = self._step, self._num_planned
        assert step is not None
        self._began_at += num_steps * step.seconds
        self._step = None
        served = self.model.finish(step, num_steps)
        for job in served:
            assert isinstance(job, VirtualJob)
            if job.num_made == 1:
                job.on_first()
            elif job.is_done:
                job.on_last()
        if self._step is None:  # unless a callback has brought the next job, and the engine has begun with it
            self._begin()
