"""Penalties from the token counts of one sequence, updated token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.protocol import SamplingParams

_INITIAL_CAPACITY = 64


def has_penalties(params: SamplingParams) -> bool:
    """Return whether a sequence with these parameters needs a PenaltyState."""
    return params.presence_penalty != 0.0 or params.frequency_penalty != 0.0 or params.repetition_penalty != 1.0


class PenaltyState:
    """Distinct tokens of a sequence with their counts in its output; a step's cost is proportional to them.

    Presence and frequency penalties count the output only (OpenAI); the repetition penalty also counts the prompt
    (Hugging Face).
    """

    def __init__(self, params: SamplingParams, prompt_token_ids: Sequence[int], device: torch.device) -> None:
        self._params = params
        self._index_of: dict[int, int] = {}
        self._ids = torch.zeros(_INITIAL_CAPACITY, dtype=torch.int64, device=device)
        self._counts = torch.zeros(_INITIAL_CAPACITY, dtype=torch.float32, device=device)
        self._num_output = 0
        if params.repetition_penalty != 1.0:
            self._enter(list(dict.fromkeys(prompt_token_ids)))
        self._num_prompt_entries = len(self._index_of)

    @classmethod
    def create(
        cls, params: SamplingParams, prompt_token_ids: Sequence[int], device: torch.device
    ) -> PenaltyState | None:
        """Return the state of a new sequence, or None if its parameters have no penalty."""
        return cls(params, prompt_token_ids, device) if has_penalties(params) else None

    def penalise(self, logits: torch.Tensor, output_token_ids: Sequence[int], draft_token_ids: Sequence[int]) -> None:
        """Apply the penalties to logits [vocab] in place, after the output and the draft tokens that follow it.

        The output of a sequence only grows; its new tokens since the last call are counted here.
        """
        assert len(output_token_ids) >= self._num_output, "accepted output never shrinks"
        self._count(output_token_ids[self._num_output :], 1.0)
        self._num_output = len(output_token_ids)
        self._count(draft_token_ids, 1.0)
        try:
            self._apply(logits)
        finally:
            self._count(draft_token_ids, -1.0)

    def _apply(self, logits: torch.Tensor) -> None:
        ids = self._ids[: len(self._index_of)]
        counts = self._counts[: len(self._index_of)]
        values = logits.index_select(0, ids)
        repetition = self._params.repetition_penalty
        is_output = counts > 0
        if repetition != 1.0:
            # An entry outside prompt and output comes from a rejected draft token.
            has_occurred = is_output.clone()
            has_occurred[: self._num_prompt_entries] = True
            repeated = torch.where(values > 0, values / repetition, values * repetition)
            values = torch.where(has_occurred, repeated, values)
        values -= counts * self._params.frequency_penalty + is_output * self._params.presence_penalty
        logits.index_copy_(0, ids, values)

    def _count(self, token_ids: Sequence[int], change: float) -> None:
        self._enter([token_id for token_id in dict.fromkeys(token_ids) if token_id not in self._index_of])
        for token_id in token_ids:
            self._counts[self._index_of[token_id]] += change

    def _enter(self, token_ids: list[int]) -> None:
        """Add new distinct tokens with count 0."""
        if not token_ids:
            return
        start, end = len(self._index_of), len(self._index_of) + len(token_ids)
        if end > len(self._ids):
            grown = max(end, 2 * len(self._ids)) - len(self._ids)
            self._ids = torch.nn.functional.pad(self._ids, (0, grown))
            self._counts = torch.nn.functional.pad(self._counts, (0, grown))
        self._ids[start:end] = torch.tensor(token_ids, device=self._ids.device)
        self._index_of.update(zip(token_ids, range(start, end), strict=True))
