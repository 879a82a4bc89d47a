"""GeneralHead: log odds from what holds within every kind of work, for prompts of kinds that the training lacked."""

from __future__ import annotations

from operator import mul

import msgspec

from routing_policies.quality.features import Features


class GeneralHead(msgspec.Struct, frozen=True, kw_only=True):
    """Linear head over the leading numbers of the features; it reads no words, so that no topic decides."""

    bias: float
    weights: tuple[float, ...]
    """Weight of each leading number; that of the length is the largest."""

    def log_odds(self, features: Features) -> float:
        """Return the log odds that the weaker model's answer is as good as the stronger one's."""
        return self.bias + float(sum(map(mul, self.weights, features.numbers)))
