"""How often each kind of guess has been right."""

from __future__ import annotations

from engine.speculation.acceptance import AcceptanceRate
from engine.speculation.guess import NUM_KINDS, Kind, prior

_TRIALS = 4.0
_DECAY = 0.98


class TrackRecord:
    """Judges guesses by what was said, whether they were verified as drafts or only kept in mind.

    So lookups go on being judged while they are not used, which costs next to nothing.
    """

    def __init__(self) -> None:
        self._rates = [
            AcceptanceRate(prior=prior(kind), prior_trials=_TRIALS, decay=_DECAY) for kind in range(NUM_KINDS)
        ]
        self.chances = [rate.value for rate in self._rates]
        """Probability that the next guess is right, by kind; read only."""

    def observe(self, kind: Kind, *, was_right: bool) -> None:
        """Learn from one guess."""
        rate = self._rates[kind]
        rate.observe(1, int(was_right))
        self.chances[kind] = rate.value
