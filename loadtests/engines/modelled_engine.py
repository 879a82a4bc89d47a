"""A decode engine reduced to its arithmetic: one step after another, each as long as its work states. Sans-I/O.

The model is the one that measured engines follow closely enough to queue behind: a step costs a fixed time, a time for
every decoding row and a time for every prefilled token; prefill goes in chunks of one token budget a step. Long prompts
stand in a lane of their own, as they do in this project's engine: short and long ones get rows in turn, and long ones
lengthen a step little, of which short ones have their share by weight, and more; inside a lane, first come, first
served.
There is no KV cache and no reuse of prefixes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SHORT_WEIGHT: Final = 8
LONG_WEIGHT: Final = 3
"""How this project's engine weighs its lanes of short and of long prompts."""
RESERVED_SEQS_DIVISOR: Final = 16
"""One row in so many is stored for short prompts, there as here."""
USUAL_OUTPUT_TOKENS: Final = 64
"""What an engine takes for the length of an answer that nobody has seen."""
_MIN_CHUNK_TOKENS: Final = 8
"""Prompts go on however slow the engine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """How large and how fast the modelled engine is."""

    max_num_seqs: int = 64
    step_fixed_ms: float = 6.0
    sequence_us: float = 60.0
    prefill_us: float = 20.0
    """For each prompt token."""
    step_tokens: int = 1024
    """Prompt tokens and decoding rows in one step."""
    long_prompt_tokens: int = 1024
    """A prompt with more stands in the lane of long ones; 0: one lane for all, as in servers without lanes."""

    long_step_ratio: float = 1.75
    """Beside decoding rows, a step in which no short prompt is read takes at most so many times what it would take
    without any; 0: long prompts take all the room there is."""

    def is_long(self, prompt_tokens: int) -> bool:
        """Whether such a prompt stands in the lane of long ones."""
        return 0 < self.long_prompt_tokens < prompt_tokens

    def prompt_room(self, num_decoding: int, *, is_urgent: bool) -> int:
        """Prompt tokens that one step may read; `is_urgent`: short prompts are among them."""
        room = max(self.step_tokens - num_decoding, 0)
        if is_urgent or not num_decoding or not self.long_step_ratio:
            return room
        slack_us = (self.long_step_ratio - 1.0) * self.step_s(num_decoding, 0) * 1e6
        return min(room, max(_MIN_CHUNK_TOKENS, int(slack_us / max(self.prefill_us, 1e-9))))

    def step_s(self, num_seqs: int, num_prompt_tokens: int) -> float:
        """Seconds of a step with so many decoding rows and prefilled tokens."""
        return (self.step_fixed_ms * 1e3 + num_seqs * self.sequence_us + num_prompt_tokens * self.prefill_us) / 1e6

    def tokens_per_s(self) -> float:
        """Decode rate with every row taken and no prompt to read."""
        return self.max_num_seqs / self.step_s(self.max_num_seqs, 0)


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What an engine states of one lane: how long until its backlog is read, and how fast it reads it."""

    wait_s: float
    prefill_tokens_per_s: float


def lane_work(
    shape: EngineShape, num_running: int, num_waiting: int, unread: tuple[int, int], slowdown: float
) -> tuple[LaneWork, LaneWork]:
    """Of short prompts and of long ones, of which `unread` tokens are not read yet."""
    batch_wait_s = 0.0
    if num_waiting and num_running:
        batch_wait_s = num_waiting * USUAL_OUTPUT_TOKENS * shape.step_s(num_running, 0) * slowdown / num_running
    found = []
    for is_urgent, tokens in zip((True, False), unread, strict=True):
        room = max(1, shape.prompt_room(num_running, is_urgent=is_urgent))
        per_s = room / (shape.step_s(num_running, room) * slowdown)
        found.append(LaneWork(tokens / per_s + batch_wait_s, per_s))
    return found[0], found[1] if shape.long_prompt_tokens else found[0]


class SequenceTurns:
    """Which lane's first gets the next free row: smooth weighted round robin; a lane that nobody waits in saves
    nothing up."""

    __slots__ = ("_long", "_reserved", "_short")

    def __init__(self, shape: EngineShape) -> None:
        self._reserved = shape.max_num_seqs // RESERVED_SEQS_DIVISOR
        self._short = self._long = 0

    def next_is_long(self, num_free: int, *, has_short: bool, has_long: bool) -> bool | None:
        """Whether the lane of long prompts is next; None when nobody may have a row."""
        has_short, has_long = has_short and num_free > 0, has_long and num_free > self._reserved
        if not has_short and not has_long:
            return None
        self._short = self._short + SHORT_WEIGHT if has_short else 0
        self._long = self._long + LONG_WEIGHT if has_long else 0
        is_long = has_long and (not has_short or self._long > self._short)
        total = SHORT_WEIGHT * has_short + LONG_WEIGHT * has_long
        if is_long:
            self._long -= total
        else:
            self._short -= total
        return is_long


def share_room(shape: EngineShape, num_decoding: int, missing: Sequence[tuple[int, bool]]) -> list[int]:
    """Of a step beside `num_decoding` rows, the prompt tokens for each of the prompts that miss (so many tokens, in the
    lane of long ones); what one lane has no use for is the other's."""
    wants_long = sum(count for count, is_long in missing if is_long)
    wants_short = sum(count for count, _ in missing) - wants_long
    room = shape.prompt_room(num_decoding, is_urgent=wants_short > 0)
    calm = shape.prompt_room(num_decoding, is_urgent=False)
    for_long = min(wants_long, max(calm * LONG_WEIGHT // (SHORT_WEIGHT + LONG_WEIGHT), calm - wants_short))
    left = {True: for_long, False: min(room - for_long, wants_short)}
    chunks = []
    for count, is_long in missing:
        chunk = min(count, left[is_long])
        left[is_long] -= chunk
        chunks.append(chunk)
    return chunks


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine."""

    prompt_tokens: int
    output_tokens: int
    num_read: int = 0
    """Prompt tokens prefilled."""
    num_made: int = 0
    """Output tokens generated."""

    @property
    def is_done(self) -> bool:
        """Whether every output token was made."""
        return self.num_made >= self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What the step under way does."""

    seconds: float
    reading: tuple[tuple[Job, int], ...]
    """Jobs and how much of their prompt this step prefills."""
    decoding: tuple[Job, ...]

    @property
    def num_alike(self) -> int:
        """Return how many steps in a row are like this one, unless a job comes or leaves."""
        return 1 if self.reading else min(job.output_tokens - job.num_made for job in self.decoding)


class EngineModel:
    """`add` and `remove` jobs at any time; `begin` a step, and `finish` it when its time has passed."""

    def __init__(self, shape: EngineShape, *, slowdown: float = 1.0) -> None:
        self.shape = shape
        self.slowdown = slowdown
        """Every step takes this many times as long: a brown-out."""
        self._sequences: OrderedDict[Job, None] = OrderedDict()
        self._waiting: OrderedDict[Job, None] = OrderedDict()
        self._waiting_long: OrderedDict[Job, None] = OrderedDict()
        self._turns = SequenceTurns(shape)
        self.num_made = 0
        self.num_read = 0

    @property
    def num_running(self) -> int:
        """Rows taken."""
        return len(self._sequences)

    @property
    def num_waiting(self) -> int:
        """Jobs without a row."""
        return len(self._waiting) + len(self._waiting_long)

    @property
    def unread_tokens(self) -> tuple[int, int]:
        """Of short prompts and of long ones, the tokens that are not read yet, rows included."""
        unread, is_long = [0, 0], self.shape.is_long
        for job in (*self._sequences, *self._waiting, *self._waiting_long):
            unread[is_long(job.prompt_tokens)] += job.prompt_tokens - job.num_read
        return unread[0], unread[1]

    def __contains__(self, job: Job) -> bool:
        return job in self._sequences or job in self._lane_of(job)

    def add(self, job: Job) -> None:
        """Take a job into the queue; it gets a row with the next step that has one."""
        self._lane_of(job)[job] = None

    def remove(self, job: Job) -> None:
        """Forget a job, wherever it is; a job that is done is already forgotten."""
        self._sequences.pop(job, None)
        self._lane_of(job).pop(job, None)

    def begin(self) -> Step | None:
        """The next step, or None when there is nothing to do."""
        self._give_places()
        decoding = tuple(job for job in self._sequences if job.num_read >= job.prompt_tokens)
        unread = [job for job in self._sequences if job.num_read < job.prompt_tokens]
        missing = [(job.prompt_tokens - job.num_read, self.shape.is_long(job.prompt_tokens)) for job in unread]
        chunks = share_room(self.shape, len(decoding), missing)
        reading = [(job, count) for job, count in zip(unread, chunks, strict=True) if count]
        if not decoding and not reading:
            return None
        seconds = self.shape.step_s(len(decoding), sum(count for _, count in reading)) * self.slowdown
        return Step(seconds, tuple(reading), decoding)

    def finish(self, step: Step, num_steps: int = 1) -> list[Job]:
        """Return the jobs that got tokens by this step, or by so many alike; jobs that are done leave.

        Jobs that were removed meanwhile get none.
        """
        served = []
        for job, count in step.reading:
            if job in self._sequences:
                job.num_read += count
                self.num_read += count
                if job.num_read >= job.prompt_tokens:
                    served.append(job)  # the last chunk of a prompt makes the first token
        begun = len(served)
        served += [job for job in step.decoding if job in self._sequences]
        for index, job in enumerate(served):
            num_tokens = 1 if index < begun else num_steps
            job.num_made += num_tokens
            self.num_made += num_tokens
            if job.is_done:
                del self._sequences[job]
        return served

    def _lane_of(self, job: Job) -> OrderedDict[Job, None]:
        return self._waiting_long if self.shape.is_long(job.prompt_tokens) else self._waiting

    def _give_places(self) -> None:
        while True:
            num_free = self.shape.max_num_seqs - len(self._sequences)
            short, long = self._waiting, self._waiting_long
            is_long = self._turns.next_is_long(num_free, has_short=bool(short), has_long=bool(long))
            if is_long is None:
                return
            job, _ = (long if is_long else short).popitem(last=False)
            self._sequences[job] = None
