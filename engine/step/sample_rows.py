"""Sampler inputs of a sequence at one or several of its next positions."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from weakref import WeakKeyDictionary

import torch

from engine.sampling.grammar_mask import unpack_mask
from engine.sampling.penalties import PenaltyState, has_penalties
from engine.sampling.sampler import SampleRow
from engine.step.sequence import Sequence


class SampleRows:
    """Factory of sample rows; token counts of penalised sequences live as long as those, over preemptions too."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._penalties: WeakKeyDictionary[Sequence, PenaltyState] = WeakKeyDictionary()

    def of(self, seq: Sequence, draft_token_ids: SequenceOf[int], first: int = 0) -> list[SampleRow]:
        """Return one row for each position that lies behind at least `first` of the drafts, in order."""
        penalties = self._penalties_of(seq)
        allowed = self._allowed(seq, draft_token_ids)
        # The prompt counts only through its penalties.
        output_token_ids = seq.token_ids[seq.num_prompt_tokens :]
        return [
            SampleRow(
                params=seq.params,
                position=seq.num_tokens + count,
                prompt_token_ids=(),
                output_token_ids=output_token_ids,
                draft_token_ids=draft_token_ids[:count],
                penalties=penalties,
                allowed=None if allowed is None else allowed[count],
            )
            for count in range(first, len(draft_token_ids) + 1)
        ]

    def _allowed(self, seq: Sequence, draft_token_ids: SequenceOf[int]) -> torch.Tensor | None:
        """Return the tokens allowed by the grammar at each position, bool [1 + drafts, vocab]; None without one."""
        if seq.grammar is None:
            return None
        return unpack_mask(seq.grammar.masks(draft_token_ids), seq.grammar.vocab_size, self._device)

    def _penalties_of(self, seq: Sequence) -> PenaltyState | None:
        if not has_penalties(seq.params):
            return None
        penalties = self._penalties.get(seq)
        if penalties is None:
            prompt = seq.token_ids[: seq.num_prompt_tokens]
            penalties = self._penalties[seq] = PenaltyState(seq.params, prompt, self._device)
        return penalties
