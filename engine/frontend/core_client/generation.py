"""State of one running request: its sequences in the core, its choices and its times."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import msgspec

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.mailbox import DeadlinePassed, Mailbox, RequestAbandoned, StreamHandedOver
from engine.frontend.core_client.metrics import RequestMetrics
from engine.frontend.request.errors import ApiError, core_failed, invalid_value, overloaded_error
from engine.frontend.text.choice import Choice, Delta
from engine.frontend.tools.grammar import Grammar
from engine.protocol import Lane, SamplingParams, SeqOutput

SETTLE_S = 0.05
"""Maximum wait for the core's last output of a choice that is already complete, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrompt:
    """Prompts of a request, most often one, with their lane, deadline and cache salt."""

    prompts: list[list[int]]
    """Token ids of each prompt; all have the same number of choices, those of the first one first."""
    lane: Lane
    cache_salt: bytes
    deadline_s: float | None
    received_at: float
    """Time of receipt on the front's monotonic clock."""
    tokenize_s: float
    grammar: Grammar | None = None
    may_reason: bool = False
    """True if the model's output may have reasoning, whose tokens the usage counts apart."""
    is_patient: bool = False
    """True if the client needs no token before the last one."""
    adapter: str | None = None
    """Adapter that computes the answer; None: the base model alone."""
    begun: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Output that another engine has generated already, by choice."""
    prediction: list[int] | None = None
    """Tokens that each choice may have; None if the request predicts nothing."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))


@dataclass(slots=True)
class _Pace:
    """Arrival times of a sequence's first and last tokens."""

    first_at: float | None = None
    last_at: float = 0.0


class Generation:
    """Running request; entering the context starts its sequences, leaving it aborts those still running.

    `next` returns the new output of the choices. `is_done` is true once it has returned the end of every choice.
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
        self.params = params
        """Sampling parameters of each choice."""
        self._num_each = len(choices) // len(prompt.prompts)
        """Choices of each prompt."""
        self._metrics = metrics
        self._clock = clock
        self._mailbox = Mailbox()
        self._deadline: asyncio.TimerHandle | None = None
        self._by_seq_id: dict[int, Choice] = {}
        self._paces: dict[int, _Pace] = {}

    def __enter__(self) -> Generation:
        """Start the sequences.

        Raises:
            ApiError: The core cannot take them, or not within the deadline (503).
        """
        left_s = self._left_s()
        try:
            for place, token_ids in enumerate(self.prompt.prompts):
                self._add(token_ids, self.choices[place * self._num_each : (place + 1) * self._num_each], left_s)
        except ApiError:
            self._link.abort(self._by_seq_id)
            raise
        self._paces = {seq_id: _Pace() for seq_id in self._by_seq_id}
        if left_s is not None:
            # The core checks deadlines only between steps, and a step may be long.
            self._deadline = asyncio.get_running_loop().call_later(left_s, self._expire)
        return self

    def _add(self, token_ids: list[int], choices: Sequence[Choice], left_s: float | None) -> None:
        """Start the sequences of one prompt's choices, but of those that ended at another engine."""
        choices = [choice for choice in choices if choice.finish is None]
        if not choices:
            return
        seq_ids = self._link.add(
            self._mailbox,
            token_ids,
            [self.params[choice.index] for choice in choices],
            lane=self.prompt.lane,
            cache_salt=self.prompt.cache_salt,
            deadline_s=left_s,
            grammar=None if self.prompt.grammar is None else self.prompt.grammar.source,
            is_patient=self.prompt.is_patient,
            adapter=self.prompt.adapter,
            begun=[self.prompt.begun.get(choice.index, ()) for choice in choices],
            prediction=self.prompt.prediction,
        )
        self._by_seq_id |= zip(seq_ids, choices, strict=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort the running sequences and record the stage times of the complete ones."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._link.abort(self._by_seq_id)
        for choice in self.choices:
            if choice.finish is not None and choice.stages is not None:
                self._metrics.stages(choice.stages)

    @property
    def is_done(self) -> bool:
        """True if every choice has ended."""
        return all(choice.finish is not None for choice in self.choices)

    @property
    def is_settled(self) -> bool:
        """True if the core has reported the stage times of every choice that it ran."""
        return all(choice.stages is not None for choice in self._by_seq_id.values())

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache."""
        firsts = self.choices[:: self._num_each]
        return sum(choice.stages.num_cached_tokens for choice in firsts if choice.stages is not None)

    @property
    def predicted_tokens(self) -> tuple[int, int] | None:
        """Accepted and rejected draft tokens from the prediction, over all choices; None without a prediction."""
        if self.prompt.prediction is None:
            return None
        stages = [choice.stages for choice in self.choices if choice.stages is not None]
        num_accepted = sum(stage.num_accepted_prediction_tokens for stage in stages)
        return num_accepted, sum(stage.num_rejected_prediction_tokens for stage in stages)

    def cancel(self) -> None:
        """Free the core and end `next` with RequestAbandoned, because the client has disconnected."""
        self._link.abort(self._by_seq_id)
        self._mailbox.fail(RequestAbandoned())

    def hand_over(self) -> None:
        """Free the core and end `next` with StreamHandedOver, once it has returned the outputs already received."""
        if not self.is_done:
            self._link.abort(self._by_seq_id)
            self._mailbox.fail(StreamHandedOver())

    async def next(self) -> list[tuple[Choice, Delta]]:
        """Wait for output and return what each choice gained since the last call.

        Returns:
            At most one (choice, delta) pair for each choice.

        Raises:
            ApiError: The core failed, a grammar is wrong or the deadline has passed.
            RequestAbandoned: The client has disconnected.
            StreamHandedOver: The engine drains, and the gateway continues the stream.
        """
        try:
            outputs = await self._mailbox.take()
        except DeadlinePassed:
            raise self._late("The deadline passed before an answer began.") from None
        started_at = self._clock()
        gained: dict[int, tuple[Choice, Delta]] = {}
        for output, arrived_at in _merged(outputs):
            choice = self._by_seq_id[output.seq_id]
            if choice.finish is not None:  # a stop string ended it, and the core has not processed the abort yet
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
        """Wait briefly for the stage times of choices that a stop string ended, so that usage is exact."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not self.is_settled:
                    await self.next()

    def note_first_token(self) -> None:
        """Record the time to first token; only the first call counts."""
        if self.first_token_at is None:
            self.first_token_at = self._clock()
            self._metrics.first_token(self.first_token_at - self.prompt.received_at)

    def note_completed(self) -> None:
        """Record the end-to-end latency of the complete answer."""
        self._metrics.completed(self._clock() - self.prompt.received_at, self.detokenize_s)

    def _check(self, output: SeqOutput) -> None:
        if output.fault == "grammar" and self.prompt.grammar is not None:
            param, reason = self.prompt.grammar.fault(output.error or "no reason given")
            raise invalid_value(param, f"`{param}` has a schema that cannot be followed: {reason.rstrip('.')}.")
        if output.finish_reason == "error":
            raise core_failed(f"The model process failed on this request: {output.error or 'no reason given'}.")
        if output.finish_reason == "abort":
            reason = output.error or "the deadline passed before an answer began"
            raise self._late(f"{reason[0].upper()}{reason[1:]}.")

    def _left_s(self) -> float | None:
        """Return the seconds until the deadline; None without one.

        Raises:
            ApiError: The deadline has passed (503).
        """
        if self.prompt.deadline_s is None:
            return None
        left_s = self.prompt.deadline_s - (self._clock() - self.prompt.received_at)
        if left_s <= 0.0:
            raise self._late("The deadline passed while the prompt was read.")
        return left_s

    def _expire(self) -> None:
        """Free the core at the deadline, and end `next` once it has returned the outputs already received."""
        if self.is_done:  # only the stage times are missing
            return
        self._link.abort(self._by_seq_id)
        self._mailbox.fail(DeadlinePassed())

    def _late(self, reason: str) -> ApiError:
        """Return the error of a missed deadline: 503 before the first token, 504 after it."""
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
    """Merge outputs of one sequence, so that a slow reader sends one event for many tokens."""
    if len(outputs) == 1:
        return outputs
    merged: dict[int, tuple[SeqOutput, float]] = {}
    for output, arrived_at in outputs:
        before = merged.get(output.seq_id)
        merged[output.seq_id] = (output if before is None else _joined(before[0], output), arrived_at)
    return list(merged.values())


def _joined(first: SeqOutput, second: SeqOutput) -> SeqOutput:
    has_logprobs = first.logprobs is not None or second.logprobs is not None
    # The merged output starts from the later one, so that a field added to SeqOutput is not lost here.
    return msgspec.structs.replace(
        second,
        token_ids=first.token_ids + second.token_ids,
        logprobs=[*(first.logprobs or ()), *(second.logprobs or ())] if has_logprobs else None,
        stages=second.stages or first.stages,
    )
