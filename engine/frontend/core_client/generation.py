"""One request under way: its sequences in the core, its choices, its clock. Frees the core on every way out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import msgspec

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.mailbox import DeadlinePassed, Mailbox, RequestAbandoned
from engine.frontend.core_client.metrics import RequestMetrics
from engine.frontend.request.errors import ApiError, core_failed, invalid_value, overloaded_error
from engine.frontend.text.choice import Choice, Delta
from engine.frontend.tools.grammar import Grammar
from engine.protocol import Lane, SamplingParams, SeqOutput

SETTLE_S = 0.05
"""Longest wait for the core's last word on a choice that is complete without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrompt:
    """What a request asks the core to continue, and how it may be treated there."""

    token_ids: list[int]
    lane: Lane
    cache_salt: bytes
    deadline_s: float | None
    received_at: float
    """Instant (the front's monotonic clock) the request came."""
    tokenize_s: float
    grammar: Grammar | None = None
    is_patient: bool = False
    """Whether nothing happens to a token before the last one is there."""


@dataclass(slots=True)
class _Pace:
    """When a sequence's tokens came."""

    first_at: float | None = None
    last_at: float = 0.0


class Generation:
    """Use as a context: enter starts the sequences, exit aborts what is still running.

    `next` gives what the choices gained; after it has given every choice's end, `is_done` is true.
    """

    def __init__(
        self,
        link: CoreLink,
        prompt: EnginePrompt,
        params: Sequence[SamplingParams],
        choices: Sequence[Choice],
        metrics: RequestMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.prompt = prompt
        self.choices = choices
        self.detokenize_s = 0.0
        self.first_token_at: float | None = None
        self._link = link
        self._params = list(params)
        self._metrics = metrics
        self._clock = clock
        self._mailbox = Mailbox()
        self._deadline: asyncio.TimerHandle | None = None
        self._by_seq_id: dict[int, Choice] = {}
        self._paces: dict[int, _Pace] = {}

    def __enter__(self) -> Generation:
        """Start the sequences. Raises ApiError (503) when the core cannot take them, or not in time."""
        left_s = self._left_s()
        seq_ids = self._link.add(
            self._mailbox,
            self.prompt.token_ids,
            self._params,
            lane=self.prompt.lane,
            cache_salt=self.prompt.cache_salt,
            deadline_s=left_s,
            grammar=None if self.prompt.grammar is None else self.prompt.grammar.source,
            is_patient=self.prompt.is_patient,
        )
        self._by_seq_id = dict(zip(seq_ids, self.choices, strict=True))
        self._paces = {seq_id: _Pace() for seq_id in seq_ids}
        if left_s is not None:
            # The core looks at deadlines between its steps only, and a step may be long.
            self._deadline = asyncio.get_running_loop().call_later(left_s, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort whatever still runs; count what is complete."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._link.abort(self._by_seq_id)
        for choice in self.choices:
            if choice.finish is not None and choice.stages is not None:
                self._metrics.stages(choice.stages)

    @property
    def is_done(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.finish is not None for choice in self.choices)

    @property
    def is_settled(self) -> bool:
        """Whether the core has told the times of every choice."""
        return all(choice.stages is not None for choice in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that were not computed again."""
        stages = self.choices[0].stages
        return stages.num_cached_tokens if stages is not None else 0

    def cancel(self) -> None:
        """The client left: free the core now, and end `next` with ClientGone."""
        self._link.abort(self._by_seq_id)
        self._mailbox.fail(RequestAbandoned())

    async def next(self) -> list[tuple[Choice, Delta]]:
        """What was gained since the last call, one item a choice. Raises ApiError and ClientGone."""
        try:
            outputs = await self._mailbox.take()
        except DeadlinePassed:
            raise self._late("The deadline passed before an answer began.") from None
        started_at = self._clock()
        gained: dict[int, tuple[Choice, Delta]] = {}
        for output, arrived_at in _merged(outputs):
            choice = self._by_seq_id[output.seq_id]
            if choice.finish is not None:  # a stop string ended it before the core knew
                choice.stages = output.stages or choice.stages
                continue
            self._check(output)
            self._note_pace(output, arrived_at)
            delta = choice.feed(output)
            gained[choice.index] = (choice, delta)
            if delta.finish is not None:
                self._ended(output.seq_id, choice)
        self.detokenize_s += self._clock() - started_at
        return list(gained.values())

    async def settle(self) -> None:
        """Give the core a moment to tell the times of choices that a stop string ended; usage is exact then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not self.is_settled:
                    await self.next()

    def note_first_token(self) -> None:
        """Content is about to be sent; counts once."""
        if self.first_token_at is None:
            self.first_token_at = self._clock()
            self._metrics.first_token(self.first_token_at - self.prompt.received_at)

    def note_completed(self) -> None:
        """The whole answer is sent."""
        self._metrics.completed(self._clock() - self.prompt.received_at, self.detokenize_s)

    def _check(self, output: SeqOutput) -> None:
        if output.fault == "grammar" and self.prompt.grammar is not None:
            param = self.prompt.grammar.param
            raise invalid_value(param, f"{param}: this schema cannot be followed: {output.error}.")
        if output.finish_reason == "error":
            raise core_failed(f"The model process failed on this request: {output.error or 'no reason given'}.")
        if output.finish_reason == "abort":
            reason = output.error or "the deadline passed before an answer began"
            raise self._late(f"{reason[0].upper()}{reason[1:]}.")

    def _left_s(self) -> float | None:
        """What is left of the deadline. Raises ApiError (503) when nothing is."""
        if self.prompt.deadline_s is None:
            return None
        left_s = self.prompt.deadline_s - (self._clock() - self.prompt.received_at)
        if left_s <= 0.0:
            raise self._late("The deadline passed while the prompt was read.")
        return left_s

    def _expire(self) -> None:
        """The deadline is here: free the core now, and end `next` behind what has come."""
        if self.is_done:  # only the core's times are missing
            return
        self._link.abort(self._by_seq_id)
        self._mailbox.fail(DeadlinePassed())

    def _late(self, reason: str) -> ApiError:
        """What a missed deadline is to the client: nothing was begun, or an answer is cut."""
        if self.first_token_at is None:
            return overloaded_error(reason, reason="deadline", retry_after_s=None, lane=self.prompt.lane)
        message = "The deadline passed before the answer was complete."
        return ApiError(504, message, type="api_error", code="upstream_timeout")

    def _note_pace(self, output: SeqOutput, arrived_at: float) -> None:
        if not output.token_ids:
            return
        pace = self._paces[output.seq_id]
        if pace.first_at is None:
            pace.first_at = arrived_at
        else:
            self._metrics.gap(arrived_at - pace.last_at, len(output.token_ids))
        pace.last_at = arrived_at

    def _ended(self, seq_id: int, choice: Choice) -> None:
        pace = self._paces[seq_id]
        if pace.first_at is not None and choice.num_tokens > 1:
            self._metrics.pace((pace.last_at - pace.first_at) / (choice.num_tokens - 1))
        if choice.has_stopped_itself:
            self._link.finish(seq_id)


def _merged(outputs: list[tuple[SeqOutput, float]]) -> list[tuple[SeqOutput, float]]:
    """Outputs of the same sequence as one, so that a reader that fell behind sends one event for many tokens."""
    if len(outputs) == 1:
        return outputs
    merged: dict[int, tuple[SeqOutput, float]] = {}
    for output, arrived_at in outputs:
        before = merged.get(output.seq_id)
        merged[output.seq_id] = (output if before is None else _joined(before[0], output), arrived_at)
    return list(merged.values())


def _joined(first: SeqOutput, second: SeqOutput) -> SeqOutput:
    has_logprobs = first.logprobs is not None or second.logprobs is not None
    # Everything but the tokens is the later output's, so that a field added to outputs is not lost here.
    return msgspec.structs.replace(
        second,
        token_ids=first.token_ids + second.token_ids,
        logprobs=[*(first.logprobs or ()), *(second.logprobs or ())] if has_logprobs else None,
        stages=second.stages or first.stages,
    )
