"""One prompt and its continuation inside the core: tokens, KV blocks, state and where its time went."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum

from engine.lora.adapter_table import LoadedAdapter
from engine.protocol import AbortState, Add, Lane, SamplingParams, StageTimes
from engine.sampling.grammar import GrammarState
from engine.step.predicted_text import PredictedText

RESUMED_CHUNK_TOKENS = 16
"""Longest chunk that compiled steps compute with the same numbers as its tokens one by one."""
INT64 = "q"
"""Array type code of token ids and block ids: numpy and torch read both without a copy."""


class SequenceState(Enum):
    """State of a sequence.

    Legal moves: [grammar →] waiting → running ⇄ preempted, and any of them → finished, once.
    """

    GRAMMAR = "grammar"
    """State of a sequence whose grammar is being compiled; it is not in any queue yet."""
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class SequenceStage(Enum):
    """Stage to which a sequence's time is charged."""

    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"


class StageClock:
    """Clock that splits a sequence's life into stages without gaps; its input are monotonic instants."""

    __slots__ = ("_seconds", "_since", "_stage")

    def __init__(self, now: float) -> None:
        self._stage = SequenceStage.QUEUE
        self._since = now
        self._seconds = dict.fromkeys(SequenceStage, 0.0)

    def enter(self, stage: SequenceStage, now: float) -> None:
        """Charge the time since the last change to the stage that ends now."""
        self._seconds[self._stage] += max(0.0, now - self._since)
        self._stage = stage
        self._since = now

    def seconds(self, stage: SequenceStage) -> float:
        """Return the seconds charged to a stage up to the last change."""
        return self._seconds[stage]


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class Sequence:
    """Mutable by the scheduler and the block manager only; `num_computed_tokens` chases `num_tokens`."""

    seq_id: int
    arrival_index: int
    """Position in the order of receipt; breaks every tie."""
    token_ids: array[int]
    """Prompt, then every accepted output token."""
    num_prompt_tokens: int
    params: SamplingParams
    lane: Lane
    priority: int
    cache_salt: bytes
    deadline_at: float | None
    stages: StageClock
    adapter: LoadedAdapter | None = None
    """Adapter that computes the sequence; None: the base model alone."""
    state: SequenceState = SequenceState.WAITING
    grammar: GrammarState | None = None
    """State of the output's grammar behind the last accepted token."""
    num_computed_tokens: int = 0
    """Leading tokens whose keys and values are in the KV pool."""
    block_table: array[int] = field(default_factory=lambda: array(INT64))
    block_digests: list[bytes] = field(default_factory=list)
    """Chained digests of the leading full blocks, as far as they were computed."""
    num_shared_tokens: int = 0
    """Leading tokens that were found in the pool, in blocks which others read too."""
    num_registered_blocks: int = 0
    """Leading blocks already offered to the prefix index."""
    held_start: int = 0
    """First block of the table that has a place in the pool of windowed layers for this sequence."""
    held_end: int = 0
    """End of the blocks with such a place; 0: there are none."""
    num_expected_cached_tokens: int = 0
    """Leading tokens that the prefix cache is expected to hold at its turn; estimated when it was queued."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache when the sequence was first admitted."""
    num_prefill_chunks: int = 0
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_resumed_tokens: int = 0
    """Output tokens that another engine has generated."""
    prediction: PredictedText | None = None
    """Answer that the request expects; None without one."""

    @classmethod
    def from_add(
        cls, add: Add, *, arrival_index: int, received_at: float, adapter: LoadedAdapter | None = None
    ) -> Sequence:
        """Create a waiting sequence for a request received at the monotonic instant `received_at`."""
        return cls(
            seq_id=add.seq_id,
            arrival_index=arrival_index,
            token_ids=array(INT64, [*add.prompt_token_ids, *add.output_token_ids]),
            num_prompt_tokens=len(add.prompt_token_ids),
            params=add.params,
            lane=add.lane,
            priority=add.priority,
            cache_salt=add.cache_salt,
            deadline_at=None if add.deadline_s is None else received_at + add.deadline_s,
            stages=StageClock(received_at),
            adapter=adapter,
            num_resumed_tokens=len(add.output_token_ids),
            prediction=PredictedText(array(INT64, add.prediction_token_ids)) if add.prediction_token_ids else None,
        )

    @property
    def max_chunk_tokens(self) -> int:
        """Largest next chunk: resumed output is computed in short ones, with the numbers of one token at a time."""
        num_computed, num_prompt = self.num_computed_tokens, self.num_prompt_tokens
        if not self.num_resumed_tokens or num_computed >= num_prompt + self.num_resumed_tokens:
            return self.num_uncomputed_tokens
        return num_prompt - num_computed if num_computed < num_prompt else RESUMED_CHUNK_TOKENS

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: smaller is served first and preempted last."""
        return (self.priority, self.arrival_index)

    @property
    def num_tokens(self) -> int:
        """Number of prompt and output tokens so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Number of output tokens so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens whose keys and values are still missing; 1 while decoding."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_expected_uncached_tokens(self) -> int:
        """Known tokens that are expected to be computed at its turn, while it waits."""
        return len(self.token_ids) - self.num_expected_cached_tokens

    @property
    def max_total_tokens(self) -> int:
        """Longest the sequence can become."""
        return self.num_prompt_tokens + self.params.max_tokens

    def abort_state(self) -> AbortState:
        """Return the name of the sequence's state for the report of an abort."""
        if self.state is SequenceState.GRAMMAR:
            return "grammar"
        if self.state is SequenceState.WAITING:
            return "queued"
        if self.state is SequenceState.PREEMPTED:
            return "preempted"
        return "decode" if self.num_output_tokens else "prefill"

    def stage_times(self) -> StageTimes:
        """Return the sequence's stage record; complete once the last stage has ended."""
        return StageTimes(
            queue_s=self.stages.seconds(SequenceStage.QUEUE),
            prefill_s=self.stages.seconds(SequenceStage.PREFILL),
            decode_s=self.stages.seconds(SequenceStage.DECODE),
            num_prefill_chunks=self.num_prefill_chunks,
            num_cached_tokens=self.num_cached_tokens,
            num_preemptions=self.num_preemptions,
            num_drafted_tokens=self.num_drafted_tokens,
            num_accepted_tokens=self.num_accepted_tokens,
            num_accepted_prediction_tokens=0 if self.prediction is None else self.prediction.num_accepted,
            num_rejected_prediction_tokens=0 if self.prediction is None else self.prediction.num_rejected,
        )
