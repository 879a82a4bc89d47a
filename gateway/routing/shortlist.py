"""Shortlist: the few of many candidates that a decision weighs, so that its cost does not grow with their number.

The better of two random candidates is nearly as good as the best of all. Drawing also keeps gateways with the same
state from all choosing one deployment. Candidates with the request's beginning in their cache are added.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from gateway.deployments.live import LiveDeployment
from gateway.routing.candidate import LiveCandidate
from gateway.routing.routing_request import RoutingRequest
from routing_policies.views import FIRST_ATTEMPT, Attempt

MANY: Final = 4
"""Number of candidates up to which all are weighed."""
NUM_DRAWN: Final = 2
_MAX_DRAWS: Final = 8


class Shortlist:
    """Shortlist drawn from the candidates of one route."""

    __slots__ = ("_by_id", "_options")

    def __init__(self, options: Sequence[LiveCandidate]) -> None:
        self._options = options
        self._by_id = {option.live.id: option for option in options}

    def draw(
        self, routing_request: RoutingRequest, attempt: Attempt, now: float, rng: random.Random
    ) -> list[LiveCandidate] | None:
        """Draw fit candidates: those preferred for their cached prefix, then random ones.

        None when so few are fit that a decision should weigh all.
        """
        found: list[LiveCandidate] = []
        options, num, is_first = self._options, len(self._options), attempt is FIRST_ATTEMPT
        for _ in range(_MAX_DRAWS):
            option = options[int(rng.random() * num)]
            live = option.live  # the usual case of `_is_fit`, without a call: this runs for every request
            is_usual = is_first and live.is_ready and live.health.is_usual
            if (is_usual or _is_fit(live, attempt, now)) and option not in found:
                found.append(option)
                if len(found) == NUM_DRAWN:
                    break
        else:
            return None
        for name in self._favourites(routing_request):
            favourite = self._by_id.get(name)
            if favourite is not None and favourite not in found and _is_fit(favourite.live, attempt, now):
                found.insert(0, favourite)
        return found

    def _favourites(self, routing_request: RoutingRequest) -> list[str]:
        """Return the deployment that answered last, and the one with the most cached tokens."""
        held = routing_request.held_tokens
        if not held:
            return [] if routing_request.last_deployment is None else [routing_request.last_deployment]
        most = max(held, key=held.__getitem__) if len(held) > 1 else next(iter(held))
        return [most] if routing_request.last_deployment is None else [routing_request.last_deployment, most]


def _is_fit(live: LiveDeployment, attempt: Attempt, now: float) -> bool:
    """Return whether nothing rules the candidate out; one that is due for another try counts as well."""
    if not live.is_ready:
        return False
    if attempt is not FIRST_ATTEMPT and (
        live.id in attempt.already_tried or live.id in attempt.avoid or live.id in attempt.cold
    ):
        return False
    return live.health.is_usual or live.health.may_probe(now)
