"""The modelled engine of `loadtests.engine_model`, told in events instead of steps: first token and last token only.

The arithmetic is the same to the last step (a test compares them); what differs is the price. A run of steps in which
nothing begins and nothing ends is one timer, so that a hundred engines can be simulated faster than they would run.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from loadtests.engine_model import EngineShape, RowTurns, share_room


class Timer(Protocol):
    """A callback that may still be called off."""

    def cancel(self) -> None:
        """Do not call."""


class Schedule(Protocol):
    """The part of an event loop that an engine needs."""

    def time(self) -> float:
        """Now."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back at an instant."""


class FastJob:
    """One request; `on_first` is called with its first token, `on_last` with its last, both at that instant."""

    __slots__ = ("ends_at_step", "is_gone", "num_read", "on_first", "on_last", "output_tokens", "prompt_tokens")

    def __init__(
        self, prompt_tokens: int, output_tokens: int, on_first: Callable[[], None], on_last: Callable[[], None]
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.num_read = 0
        self.ends_at_step = 0
        self.is_gone = False
        self.on_first = on_first
        self.on_last = on_last


class FastEngine:
    """Lanes and turns as in the model in steps; everything happens on one schedule."""

    def __init__(self, shape: EngineShape, schedule: Schedule) -> None:
        self.shape = shape
        self.slowdown = 1.0
        self.num_steps = 0
        self.num_wasted = 0
        """Tokens made for jobs that were removed before their end."""
        self.num_made = 0
        self._schedule = schedule
        self._waiting: deque[FastJob] = deque()
        self._waiting_long: deque[FastJob] = deque()
        self._turns = RowTurns(shape)
        self._num_gone_waiting = 0
        self._reading: list[FastJob] = []
        self._decoding: list[tuple[int, int, FastJob]] = []
        """A heap by the number of the step that makes the last token."""
        self._num_decoding = 0
        self._order = count()
        self._timer: Timer | None = None
        self._began_at = 0.0
        self._steps_planned = 0
        self._step_s = 0.0
        self._chunks: list[tuple[FastJob, int]] = []

    @property
    def num_running(self) -> int:
        """Rows taken."""
        return len(self._reading) + self._num_decoding

    @property
    def num_waiting(self) -> int:
        """Jobs without a row."""
        return len(self._waiting) + len(self._waiting_long) - self._num_gone_waiting

    @property
    def unread_tokens(self) -> tuple[int, int]:
        """Of short prompts and of long ones, the tokens that are not read yet."""
        unread, is_long = [0, 0], self.shape.is_long
        for job in (*self._waiting, *self._waiting_long, *self._reading):
            if not job.is_gone:
                unread[is_long(job.prompt_tokens)] += job.prompt_tokens - job.num_read
        return unread[0], unread[1]

    @property
    def stepped_at(self) -> float:
        """When the last step ended that rows were decoded in."""
        if self._timer is None or self._step_s <= 0 or not self._num_decoding:
            return self._began_at
        return self._began_at + (self._steps_done() - self.num_steps) * self._step_s

    def add(self, job: FastJob) -> None:
        """Take a job into the queue; it is looked at when the step under way has ended."""
        (self._waiting_long if self.shape.is_long(job.prompt_tokens) else self._waiting).append(job)
        if self._timer is None:
            self._began_at = self._schedule.time()
            self._begin()
        elif self.num_running < self.shape.max_rows:  # else nothing changes before somebody ends
            self._shorten()

    def remove(self, job: FastJob) -> None:
        """Forget a job, wherever it is; one that has ended is not there any more."""
        if job.is_gone:
            return
        job.is_gone = True
        if job in self._reading:
            self._reading.remove(job)
            self._shorten()
        elif job.ends_at_step:
            self.num_wasted += job.output_tokens - (job.ends_at_step - self._steps_done())
            self.num_made += self._steps_done() - self.num_steps  # the end of this run will not count it any more
            self._num_decoding -= 1
            self._shorten()
        else:
            self._num_gone_waiting += 1

    def _steps_done(self) -> int:
        """Steps ended by now, those of the run under way included."""
        if self._timer is None or self._step_s <= 0:
            return self.num_steps
        elapsed = (self._schedule.time() - self._began_at) / self._step_s
        return self.num_steps + min(self._steps_planned, math.floor(elapsed + 1e-9))

    def _shorten(self) -> None:
        """Something changed: the run under way ends with the step that is running now."""
        if self._timer is None or self._steps_planned == 1:
            return
        elapsed = (self._schedule.time() - self._began_at) / self._step_s
        steps = max(1, math.ceil(elapsed - 1e-9))
        if steps < self._steps_planned:
            self._timer.cancel()
            self._steps_planned = steps
            self._timer = self._schedule.call_at(self._began_at + steps * self._step_s, self._finish)

    def _begin(self) -> None:
        self._give_rows()
        while self._decoding and self._decoding[0][2].is_gone:
            heapq.heappop(self._decoding)
        self._chunks = self._share_room() if self._reading else []
        if not self._chunks and not self._num_decoding:
            self._timer = None
            return
        num_read = sum(size for _, size in self._chunks)
        self._step_s = self.shape.step_s(self._num_decoding, num_read) * self.slowdown
        self._steps_planned = 1 if self._chunks else max(1, self._decoding[0][0] - self.num_steps)
        self._timer = self._schedule.call_at(self._began_at + self._steps_planned * self._step_s, self._finish)

    def _give_rows(self) -> None:
        short, long = self._waiting, self._waiting_long
        while short or long:
            for lane in (short, long):
                while lane and lane[0].is_gone:
                    lane.popleft()
                    self._num_gone_waiting -= 1
            num_free = self.shape.max_rows - self.num_running
            is_long = self._turns.next_is_long(num_free, has_short=bool(short), has_long=bool(long))
            if is_long is None:
                return
            self._reading.append((long if is_long else short).popleft())

    def _share_room(self) -> list[tuple[FastJob, int]]:
        jobs, is_long = self._reading, self.shape.is_long
        missing = [(job.prompt_tokens - job.num_read, is_long(job.prompt_tokens)) for job in jobs]
        chunks = share_room(self.shape, self._num_decoding, missing)
        return [(job, count) for job, count in zip(jobs, chunks, strict=True) if count]

    def _finish(self) -> None:
        self.num_steps += self._steps_planned
        self.num_made += self._num_decoding * self._steps_planned
        self._began_at += self._steps_planned * self._step_s
        ended: list[FastJob] = []
        while self._decoding and self._decoding[0][0] <= self.num_steps:
            job = heapq.heappop(self._decoding)[2]
            if not job.is_gone:
                job.is_gone = True
                self._num_decoding -= 1
                ended.append(job)
        begun = self._read()
        self._timer = None
        for job in begun:
            job.on_first()
        for job in ended:
            job.on_last()
        if self._timer is None:  # unless one of them has brought the next job and begun with it
            self._begin()

    def _read(self) -> list[FastJob]:
        """Jobs whose prompt is read with the step that has just ended; that makes their first token."""
        begun = []
        for job, size in self._chunks:
            if job.is_gone:
                continue
            job.num_read += size
            if job.num_read < job.prompt_tokens:
                continue
            self._reading.remove(job)
            self.num_made += 1
            begun.append(job)
            if job.output_tokens > 1:
                job.ends_at_step = self.num_steps + job.output_tokens - 1
                self._num_decoding += 1
                heapq.heappush(self._decoding, (job.ends_at_step, next(self._order), job))
        for job in begun:
            if job.output_tokens <= 1:
                job.is_gone = True
        return begun
