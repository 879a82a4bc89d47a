"""How many threads a step gets on a CPU: small ones run on one, which leaves the other cores to the front."""

from __future__ import annotations

from collections.abc import Callable

from engine.runner.thread_choice import ThreadChoice
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import Runner, StepOutput

_MEASURED_ROWS = (1, 2, 4, 8, 16)
_REPEATS = 12
"""Of which the quickest counts: what else the machine does must not decide for the life of a process."""
_LONGEST_S = 0.02
"""A step that takes longer is worth every thread, and not worth measuring so often."""
_WORTHWHILE = 1.3
"""More threads have to save this much: they also cost the front, and a step that is shared stands still when either
core is taken away, which no measurement before traffic sees."""


SetThreads = Callable[[int, int], None]
"""Have steps of so many tokens (the second argument) computed on so many threads (the first)."""


class ThreadedRunner:
    """A runner that computes small steps on one thread where that is about as fast, and all others on every thread.

    What the start found is where small compiled steps begin, which give the same numbers on any number of threads;
    what they take goes on being measured.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        num_threads: int,
        max_single_rows: int,
        set_threads: SetThreads,
        clock: Callable[[], float],
        max_compiled_tokens: int = 0,
    ) -> None:
        self._runner = runner
        self._num_threads = num_threads
        self._max_single_rows = max_single_rows
        self._set_threads = set_threads
        self._clock = clock
        self._most = min(_MEASURED_ROWS[-1], max_compiled_tokens)
        # By whether every row has one token, and by power of two of the tokens.
        self._choices: dict[tuple[bool, int], ThreadChoice] = {}

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step on as many threads as suit it."""
        num_tokens = sum(row.num_query_tokens for row in scheduled.rows)
        is_plain = num_tokens == len(scheduled.rows)
        is_single = is_plain and num_tokens <= self._max_single_rows
        if num_tokens > self._most:
            self._set_threads(1 if is_single else self._num_threads, num_tokens)
            return self._runner.execute(scheduled)
        key = is_plain, num_tokens.bit_length()
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = ThreadChoice(is_single=is_single)
        self._set_threads(1 if choice.next_is_single(num_tokens) else self._num_threads, num_tokens)
        started_at = self._clock()
        output = self._runner.execute(scheduled)
        if output.num_steps == 1:  # others do not compare
            choice.observe(num_tokens, self._clock() - started_at)
        return output


def max_single_rows(
    run: Callable[[SchedulerOutput], object],
    decode_batch: Callable[[int], SchedulerOutput],
    *,
    num_threads: int,
    max_rows: int,
    set_threads: SetThreads,
    clock: Callable[[], float],
) -> int:
    """Up to how many decode rows one thread is about as fast as all; 0: not even for one. Ends with all threads set."""
    found = 0
    for num_rows in _MEASURED_ROWS:
        if num_threads == 1 or num_rows > max_rows:
            break
        batch = decode_batch(num_rows)
        set_threads(num_threads, num_rows)
        run(batch)
        started_at = clock()
        run(batch)
        if clock() - started_at > _LONGEST_S:
            break
        seconds: dict[int, list[float]] = {1: [], num_threads: []}
        for _ in range(_REPEATS):
            for count, times in seconds.items():
                set_threads(count, num_rows)
                run(batch)  # sets up what the other number of threads left otherwise
                started_at = clock()
                run(batch)
                times.append(clock() - started_at)
        if min(seconds[1]) > min(seconds[num_threads]) * _WORTHWHILE:
            break
        found = num_rows
    set_threads(num_threads, max_rows)
    return found
