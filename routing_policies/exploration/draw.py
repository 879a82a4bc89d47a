"""Exploration: with a small probability a route chooses at random among the admissible candidates.

The draw depends on the request's id alone. So it can be repeated from the request's record, and no outcome of an
earlier request can influence it. A group's members are one candidate: policies are compared by what they choose in the
document, and the best member of a drawn group takes the request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from routing_policies.decision import Decision, Exploration
from routing_policies.policy.members import group_of
from routing_policies.policy.selection import Explore
from routing_policies.share import share_of, stable_key

PROPORTIONAL: Final = "weighted"
"""Selection policy that itself chooses at random, in proportion to the totals."""


def with_exploration(
    decision: Decision, rule: Explore, admissible: Collection[str], request_id: str, *, is_bound: bool
) -> Decision:
    """Return the decision after the draw of an exploring route; `exploration` states how it was made.

    Args:
        decision: Choice of the policy alone; it has a deployment.
        rule: Exploration of the route.
        admissible: Ids of the deployments that may be drawn, in the route's order, each of them ranked.
        request_id: Seed of the draw.
        is_bound: True if the request belongs to the chosen deployment.
    """
    assert decision.deployment is not None, "only a choice can be explored"
    base, preferred = own_propensities(decision), group_of(decision.deployment)
    weights = {group_of(one): rule.weights.get(group_of(one), 1.0) for one in admissible}
    if is_bound or not weights or (len(base) == 1 and weights.keys() <= base.keys()):
        result = Exploration(
            ratio=0.0,
            result="bound" if is_bound else "alone",
            preferred=preferred,
            chosen=preferred,
            propensities=base,
        )
        return msgspec.structs.replace(decision, exploration=result)
    propensities, key = mixed(base, rule.ratio, weights), stable_key(request_id)
    if share_of(key, "explore") >= rule.ratio:
        made = Exploration(
            ratio=rule.ratio, result="preferred", preferred=preferred, chosen=preferred, propensities=propensities
        )
        return msgspec.structs.replace(decision, exploration=made)
    chosen = _drawn(weights, share_of(key, "candidate"))
    made = Exploration(
        ratio=rule.ratio, result="explored", preferred=preferred, chosen=chosen, propensities=propensities
    )
    deployment = decision.deployment
    if chosen != preferred:
        totals = decision.totals
        deployment = max((one for one in admissible if group_of(one) == chosen), key=totals.__getitem__)
    return msgspec.structs.replace(decision, deployment=deployment, cause="explored", exploration=made)


def own_propensities(decision: Decision) -> dict[str, float]:
    """Return the probability of each candidate by the policy's own choice, without exploration."""
    assert decision.deployment is not None, "only a choice has probabilities"
    if decision.policy != PROPORTIONAL:
        return {group_of(decision.deployment): 1.0}
    totals = decision.totals
    if not any(totals.values()):
        totals = dict.fromkeys(totals, 1.0)
    whole, shares = sum(totals.values()), dict[str, float]()
    for name, total in totals.items():
        if total > 0.0:
            shares[group_of(name)] = shares.get(group_of(name), 0.0) + total / whole
    return shares


def propensities_of(decision: Decision) -> Mapping[str, float]:
    """Return the probability of each candidate under the policy that ran, with exploration where there was any."""
    return own_propensities(decision) if decision.exploration is None else decision.exploration.propensities


def mixed(base: Mapping[str, float], ratio: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the probabilities of a choice by `base`, replaced in a share of the cases by a draw with `weights`."""
    whole = sum(weights.values())
    names = dict.fromkeys((*base, *weights))
    return {name: (1.0 - ratio) * base.get(name, 0.0) + ratio * weights.get(name, 0.0) / whole for name in names}


def _drawn(weights: Mapping[str, float], point: float) -> str:
    """Return the candidate at a point in [0, 1) of the weights laid end to end."""
    left = point * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0.0:
            return name
    return list(weights)[-1]  # rounding left a remainder
