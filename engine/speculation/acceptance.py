"""How often a sequence's drafts are accepted, learned while it decodes."""

from __future__ import annotations


class AcceptanceRate:
    """Probability that the next draft is accepted, given that those before it were.

    Each verified position up to and including the first rejection is one trial. Old trials fade, and a prior weighs
    as much as a few of them, so that one lucky or unlucky step does not decide.
    """

    __slots__ = ("_accepted", "_decay", "_trials")

    def __init__(self, *, prior: float = 0.6, prior_trials: float = 4.0, decay: float = 0.8) -> None:
        """`decay` is what remains of older evidence after each verification."""
        self._accepted = prior * prior_trials
        self._trials = prior_trials
        self._decay = decay

    @property
    def value(self) -> float:
        """Current estimate, in (0, 1)."""
        return self._accepted / self._trials

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Learn from one verification of `num_drafted` tokens."""
        assert 0 <= num_accepted <= num_drafted
        if not num_drafted:
            return
        trials = num_accepted + (1 if num_accepted < num_drafted else 0)
        self._accepted = self._decay * self._accepted + num_accepted
        self._trials = self._decay * self._trials + trials
