"""A runner on a CPU that goes on measuring: small steps on one thread or on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.runner.thread_choice import ThreadChoice
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import Runner, StepOutput

_ALL_THREADS_HANDICAP = 1.15
"""Steps on all threads take the front's cores as well, and stand still when either core is taken away."""
_MAX_CHOICE_TOKENS = 16
"""Larger compiled steps run on every thread."""
_MAX_SINGLE_BYTES = 1 << 25
"""Bytes of weights times tokens of a step that starts out on one thread: threads would mostly wait for each other."""


class StepSettings(Protocol):
    """Settings of the model's steps that may change between two steps."""

    @property
    def max_tokens(self) -> int:
        """Tokens up to which a step of short sequences runs compiled; 0: none does."""
        ...

    def use_threads(self, num_threads: int, num_tokens: int, *, in_torch: bool = False) -> None:
        """Use `num_threads` threads for a step of `num_tokens` tokens, which torch computes if `in_torch`."""
        ...


class AdaptiveRunner:
    """A runner that chooses the threads of each step, from a static start and by what steps took lately.

    Measured time decides only what changes no number. Compiled steps give the same numbers on any number of threads, so
    their threads may change at any time. Torch's do not: steps that torch computes keep the number of threads that
    follows from their size. Prompts keep one way, because torch, vectors and the matrix unit round differently.
    """

    def __init__(
        self,
        runner: Runner,
        settings: StepSettings,
        *,
        num_threads: int,
        num_weight_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._num_threads = num_threads
        self._max_single_tokens = _MAX_SINGLE_BYTES // max(1, num_weight_bytes) if num_threads > 1 else 0
        self._clock = clock
        self._max_choice_tokens = min(_MAX_CHOICE_TOKENS, settings.max_tokens) if num_threads > 1 else 0
        # By whether every sequence has one token, and by power of two of the tokens.
        self._threads: dict[tuple[bool, int], ThreadChoice] = {}

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step on the threads that suit it."""
        num_tokens = sum(chunk.num_query_tokens for chunk in scheduled.chunks)
        is_plain = num_tokens == len(scheduled.chunks)
        is_single = is_plain and num_tokens <= self._max_single_tokens
        if scheduled.has_adapters:
            self._settings.use_threads(1 if is_single else self._num_threads, num_tokens, in_torch=True)
            return self._runner.execute(scheduled)
        if num_tokens <= self._max_choice_tokens:
            choice = self._thread_choice(num_tokens, is_plain=is_plain, is_single=is_single)
            self._settings.use_threads(choice.next_threads(num_tokens), num_tokens)
            return self._measured(choice, scheduled, num_tokens)
        self._settings.use_threads(1 if is_single else self._num_threads, num_tokens)
        return self._runner.execute(scheduled)

    def _thread_choice(self, num_tokens: int, *, is_plain: bool, is_single: bool) -> ThreadChoice:
        """Return the choice of threads for steps of this sort; `is_single` is the start of a new one."""
        key = is_plain, num_tokens.bit_length()
        choice = self._threads.get(key)
        if choice is None:
            first = 1 if is_single else self._num_threads
            choice = self._threads[key] = ThreadChoice({1: 1.0, self._num_threads: _ALL_THREADS_HANDICAP}, first)
        return choice

    def _measured(self, choice: ThreadChoice, scheduled: SchedulerOutput, num_tokens: int) -> StepOutput:
        """Compute a step and pass its duration to the choice of its threads."""
        started_at = self._clock()
        output = self._runner.execute(scheduled)
        if output.num_steps == 1:  # calls of several steps do not compare
            choice.observe(num_tokens, self._clock() - started_at)
        return output
