"""Shares of the lanes in a step: prompt tokens by weight, sequences by turn. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from engine.protocol import Lane

LANES: tuple[Lane, ...] = ("interactive", "long", "batch")
PATIENT_LANES: tuple[Lane, ...] = ("long", "batch")
"""Lanes whose first tokens are less urgent than the next tokens of decoding sequences."""
"""Lanes in the order in which ties are settled."""
WEIGHTS: Mapping[Lane, int] = MappingProxyType({"interactive": 8, "long": 3, "batch": 1})


class LaneShares:
    """Weighted fair shares of what is scarce.

    A lane that wants less than its share leaves the rest to the others; one that wants nothing saves nothing up. In
    every step each lane gets at least its share rounded down, so a prompt that arrives never waits for another lane's
    backlog; what rounding took is carried over, so that the lane of the least weight gets its tokens too.
    """

    def __init__(self, weights: Mapping[Lane, int] = WEIGHTS) -> None:
        assert all(weights[lane] > 0 for lane in LANES)
        self._weights = weights
        self._owed: dict[Lane, float] = dict.fromkeys(LANES, 0.0)
        self._turns: dict[Lane, int] = dict.fromkeys(LANES, 0)

    def split(self, budget: int, demands: Mapping[Lane, int]) -> dict[Lane, int]:
        """Return the tokens of this step for each lane; they sum to the smaller of `budget` and all `demands`.

        A lane without a demand counts as 0.
        """
        fair = self._fair_shares(budget, demands)
        grants = {lane: int(fair[lane]) for lane in LANES}
        for lane in LANES:
            self._owed[lane] = self._owed[lane] + fair[lane] - grants[lane] if fair[lane] else 0.0
        for _ in range(min(budget, sum(demands.values())) - sum(grants.values())):
            lane = max((lane for lane in LANES if grants[lane] < demands.get(lane, 0)), key=self._owed.__getitem__)
            grants[lane] += 1
            self._owed[lane] -= 1.0
        return grants

    def next_turn(self, lanes: Collection[Lane]) -> Lane:
        """Return the lane whose sequence starts next among those with a waiting one: smooth weighted round robin."""
        total = 0
        for lane in LANES:
            if lane in lanes:
                self._turns[lane] += self._weights[lane]
                total += self._weights[lane]
            else:
                self._turns[lane] = 0
        chosen = max((lane for lane in LANES if lane in lanes), key=self._turns.__getitem__)
        self._turns[chosen] -= total
        return chosen

    def _fair_shares(self, budget: int, demands: Mapping[Lane, int]) -> dict[Lane, float]:
        """Return max-min fair shares: small demands are served whole, the other lanes share the rest by weight."""
        shares = dict.fromkeys(LANES, 0.0)
        left = float(budget)
        unmet = [lane for lane in LANES if demands.get(lane, 0) > 0]
        while unmet:
            per_weight = left / sum(self._weights[lane] for lane in unmet)
            modest = [lane for lane in unmet if demands[lane] <= per_weight * self._weights[lane]]
            if not modest:
                shares.update({lane: per_weight * self._weights[lane] for lane in unmet})
                break
            for lane in modest:
                shares[lane] = float(demands[lane])
                left -= demands[lane]
                unmet.remove(lane)
        return shares
