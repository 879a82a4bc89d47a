"""How much time rounds behind a prompt save, told by its newest tokens: sums are said in two tokens, lists in fifty."""

from __future__ import annotations

import numpy as np

from engine.cpu.multi_step import draft_budget as weighing
from engine.step.sequence import Sequence

_SIZE = 1 << 12
_NEWEST = 64
"""Tokens that count: what is asked mostly stands at the end."""
_RATE = 0.1
_HOPED = 0.3
"""Decode steps' time that is saved behind a prompt nobody knows anything about."""
_WORTHWHILE, _WORTHWHILE_IN_COMPANY = 0.0, 0.2
"""A step of several prompts gets longer in ways that no book shows."""
_LEAST, _MOST = -1.0, 2.0
"""A hiccup of the machine must not decide."""
_TRIED_EVERY = 16
"""Prompts of which nothing is expected until one is tried all the same."""


class PromptGains:
    """A mean over the tokens' weights, each of which moves a little towards what came of a prompt that has it.

    Least mean squares (B. Widrow and M. Hoff, "Adaptive Switching Circuits", 1960) over hashed tokens: prompts of one
    kind share words, and traffic is of few kinds.
    """

    def __init__(self) -> None:
        weighing.prepare()
        self._weights = np.full(_SIZE, _HOPED)
        self._num_refused = 0

    def allow(self, seqs: list[Sequence]) -> bool:
        """Whether it is worth it for any of these prompts, or to be tried again."""
        least = _WORTHWHILE if len(seqs) == 1 else _WORTHWHILE_IN_COMPANY
        if any(self.expected(seq) >= least for seq in seqs):
            return True
        self._num_refused += 1
        if self._num_refused < _TRIED_EVERY:
            return False
        self._num_refused = 0
        return True

    def expected(self, seq: Sequence) -> float:
        """Decode steps' time that is expected to be saved."""
        found: float = weighing.mean_weight(*_newest(seq), self._weights)
        return found

    def observe(self, seq: Sequence, gain: float) -> None:
        """So many decode steps' time was saved, or lost."""
        weighing.move_weights(*_newest(seq), self._weights, min(max(gain, _LEAST), _MOST), _RATE)


def _newest(seq: Sequence) -> tuple[int, int]:
    """Address and number of a prompt's newest tokens."""
    address, _ = seq.token_ids.buffer_info()
    count = min(seq.num_prompt_tokens, _NEWEST)
    return address + 8 * (seq.num_prompt_tokens - count), count
