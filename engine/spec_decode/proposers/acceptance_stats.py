"""How often each kind of guess has been right."""

from __future__ import annotations

import numpy as np

from engine.spec_decode.proposers.draft_token import NUM_KINDS, Kind, prior

_TRIALS = 4.0
DECAY = 0.98
"""What remains of older evidence after each trial."""


class AcceptanceStats:
    """Judges guesses by what was said, whether they were verified as drafts or only kept in mind.

    So lookups go on being judged while they are not used, which costs next to nothing. A prior weighs as much as a few
    trials, so that a lucky or unlucky one does not decide.
    """

    def __init__(self) -> None:
        priors = np.array([prior(kind) for kind in range(NUM_KINDS)])
        self.trials = np.stack([_TRIALS * priors, np.full(NUM_KINDS, _TRIALS)])
        """float64 [2, kinds]: those that were right, and all."""
        self.chances = priors
        """float64 [kinds]: probability that the next guess is right; read only."""

    def chance(self, kind: Kind) -> float:
        """The same of one kind."""
        return float(self.chances[kind])

    def observe(self, kind: Kind, *, was_right: bool) -> None:
        """Learn from one guess."""
        self.trials[:, kind] *= DECAY
        self.trials[:, kind] += was_right, 1.0
        self.chances[kind] = self.trials[0, kind] / self.trials[1, kind]
