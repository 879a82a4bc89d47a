"""Admission of sequences: whether one may be served at all, and whether it may start now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepShape, StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Add
from engine.step.sequence import Sequence

_IdsByField = tuple[tuple[str, Iterable[int]], ...]

_HEADROOM_RATIO = 0.01
"""Share of the pool that stays free when a sequence is admitted beside others, for forecasts that were too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one core."""

    max_model_len: int
    """Longest prompt plus output; never more than the whole pool holds."""
    vocab_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting: int
    itl_target_s: float = 0.05
    """Longest step that a short prompt's chunk may make while others decode."""
    prefill_slack_ratio: float = 1.4
    """Factor by which a long or batch prompt's chunk may lengthen a plain decode step, within the target.

    Where several of them wait, the slack above 1 doubles.
    """


class SequenceAdmission:
    """Refusal of what can never be served, and delay of what preemption for want of blocks would probably hit."""

    def __init__(
        self, limits: Limits, blocks: BlockManager, forecast: OutputForecast, step_time: StepTimeModel
    ) -> None:
        if limits.max_model_len > blocks.num_blocks * blocks.block_size:
            raise ValueError(f"max_model_len {limits.max_model_len} exceeds the pool of {blocks.num_blocks} blocks")
        self._limits = limits
        self._blocks = blocks
        self._forecast = forecast
        self._step_time = step_time
        self._headroom_blocks = max(1, int(_HEADROOM_RATIO * blocks.num_blocks))

    def refusal(self, add: Add, num_waiting: int) -> str | None:
        """Return why this core can never serve the request, or not now for a full queue; None if it can."""
        prompt, params = add.prompt_token_ids, add.params
        if not prompt:
            return "the prompt is empty"
        if params.max_tokens < 1:
            return f"max_tokens must be at least 1, got {params.max_tokens}"
        if len(prompt) + params.max_tokens > self._limits.max_model_len:
            return (
                f"{len(prompt)} prompt tokens and max_tokens {params.max_tokens} exceed "
                f"the limit of {self._limits.max_model_len} tokens for one sequence"
            )
        if num_waiting >= self._limits.max_waiting:
            return f"the queue is full: {num_waiting} sequences are waiting"
        for name, ids in _token_ids(add):
            for extreme in (min(ids, default=0), max(ids, default=0)):
                if not 0 <= extreme < self._limits.vocab_size:
                    return f"{name}: token id {extreme} is outside the vocabulary of {self._limits.vocab_size}"
        return None

    def reserved_blocks(self, running: Iterable[Sequence]) -> int:
        """Return the number of blocks that the running sequences do not hold yet but are expected to need."""
        return sum(max(0, self._expected_blocks(seq) - len(seq.block_table)) for seq in running)

    def can_start(self, seq: Sequence, prefix: list[int], reserved_blocks: int) -> bool:
        """Return whether the sequence's expected blocks fit beside the reserved ones and some headroom."""
        need = self._blocks.num_new_blocks(seq, prefix, seq.num_tokens + self.growth_tokens(seq))
        return need + reserved_blocks + self._headroom_blocks <= self._blocks.num_free

    def growth_tokens(self, seq: Sequence) -> int:
        """Return the number of tokens that the sequence is expected to add."""
        return self._forecast.remaining_tokens(seq.lane, seq.num_output_tokens, seq.params.max_tokens)

    def room_tokens(self, seq: Sequence) -> int:
        """Return the tokens of room behind a sequence that keep its blocks contiguous if the forecast is wrong.

        It is all that the sequence may still produce, but at most its share of the free blocks. The hint takes no block
        from others.
        """
        may_produce = seq.max_total_tokens - seq.num_tokens
        share = self._blocks.num_free // self._limits.max_num_seqs * self._blocks.block_size
        return max(self.growth_tokens(seq), min(may_produce, share))

    def misses_deadline(self, seq: Sequence, num_cached_tokens: int, num_running: int, now: float) -> bool:
        """Return whether even a start now would miss the deadline for the first token, by the step-time model."""
        if seq.deadline_at is None or not self._step_time.is_fitted:
            return False
        num_tokens = seq.num_tokens - num_cached_tokens
        num_chunks = -(-num_tokens // self._limits.max_num_batched_tokens)
        shape = StepShape(num_running, num_tokens // num_chunks, seq.num_tokens, num_chunks=1)
        return now + num_chunks * self._step_time.predict(shape) > seq.deadline_at

    def _expected_blocks(self, seq: Sequence) -> int:
        return self._blocks.blocks_for(seq.num_tokens + self.growth_tokens(seq))


def _token_ids(add: Add) -> _IdsByField:
    """Return all token ids of a request by their field."""
    params = add.params
    return (
        ("prompt_token_ids", add.prompt_token_ids),
        ("logit_bias", params.logit_bias),
        ("stop_token_ids", params.stop_token_ids),
    )
