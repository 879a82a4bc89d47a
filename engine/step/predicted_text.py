"""PredictedText: the answer that a request expects, and how much of it was verified."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PredictedText:
    """Predicted answer of one sequence; the proposers read its tokens and count those that a step verified."""

    token_ids: array[int]
    """Tokens of the prediction."""
    num_accepted: int = 0
    """Draft tokens from the prediction that the answer has."""
    num_rejected: int = 0
    """Draft tokens from the prediction that a step verified and the answer does not have."""

    def count(self, num_accepted: int, num_verified: int) -> None:
        """Count draft tokens of a step, of which the answer has the first `num_accepted`."""
        self.num_accepted += num_accepted
        self.num_rejected += num_verified - num_accepted
