"""TargetPolicy: probabilities with which an evaluated policy would have sent recorded requests to their candidates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from routing_policies.exploration.draw import mixed, own_propensities
from routing_policies.matching import NoRoute
from routing_policies.off_policy.estimates import NOTHING_SEEN, WeighedChoice, weigh
from routing_policies.off_policy.outcome_model import Features
from routing_policies.policy.document import Policy, Route
from routing_policies.replay import BY_QUALITY, SIZES, Measured, RecordedRequest, Replay, unchanged_routes

CACHED: Final = "cache"
"""Candidate that stands for a response from the cache."""
_CERTAIN: Final = {CACHED: 1.0}

UNDECIDED: Final = "no routing decision was recorded"
UNCACHED: Final = "the cache answered, so no deployment's answer was recorded"
CASCADED: Final = "a cascade decides by first tokens, which are not recorded"
UNPREDICTED: Final = "the route chooses by predictions that were not recorded"
UNTRIED: Final = "{} was never chosen for such requests on route {}"
UNEXPLORED: Final = f"{UNTRIED}, which does not explore (select.explore)"


class TargetRequest(NamedTuple):
    """One request under the evaluated policy."""

    route: Route
    choice: WeighedChoice
    is_hit: bool
    """True if the cache would answer."""
    why_unseen: str | None
    """Reason why the records do not show all that the policy would do; None where they do."""


class TargetPolicy:
    """A policy to be evaluated; requests must come in order of time."""

    def __init__(self, policy: Policy, ran: Policy, measured: Measured) -> None:
        """Create the policy's routes and an empty cache.

        Args:
            policy: The policy.
            ran: The policy under which the requests were recorded.
            measured: Latencies by which `policy` is taken to choose. They must come from earlier requests.
        """
        self._explores = {route.id for route in ran.routes if route.select.explore is not None}
        self._stands = unchanged_routes(ran, policy)
        caches = {route.id: route.cache for route in ran.routes}
        self._is_same = policy == ran
        self._keeps_cache = {route.id for route in policy.routes if caches.get(route.id) == route.cache}
        self._replay = Replay(policy, measured, trusts=self._stands)

    def measure(self, measured: Measured) -> None:
        """Choose by other latencies from here on; they must come from earlier requests."""
        self._replay.measure(measured)

    def weigh(self, request: RecordedRequest) -> TargetRequest | None:
        """Return the request under the policy; None where no route takes it."""
        outcome = self._replay.send(request)
        try:
            route = self._replay.route_of(request)
        except NoRoute:
            return None
        was_hit, is_own = request.cache.startswith("hit"), route.id == request.route and route.id in self._stands
        if self._is_same or (is_own and route.id in self._keeps_cache):
            return TargetRequest(route, _as_recorded(request, was_hit=was_hit), was_hit, None)
        if outcome.is_hit or was_hit:
            if not outcome.is_hit:
                return TargetRequest(route, NOTHING_SEEN, False, UNCACHED)
            return TargetRequest(route, weigh(CACHED, request_features(request), _CERTAIN, _CERTAIN), True, None)
        if is_own:
            return TargetRequest(route, _as_recorded(request, was_hit=False), False, None)
        if not request.choice:
            return TargetRequest(route, NOTHING_SEEN, False, UNDECIDED)
        target, why = self._target(route, request)
        choice = NOTHING_SEEN if why else weigh(request.choice, request_features(request), request.propensities, target)
        if why is None and choice.seen < 1.0 - 1e-9:
            missing = max(target, key=lambda name: target[name] - choice.covered.get(name, 0.0))
            why = (UNTRIED if request.route in self._explores else UNEXPLORED).format(missing, request.route)
        return TargetRequest(route, choice, False, why)

    def _target(self, route: Route, request: RecordedRequest) -> tuple[Mapping[str, float], str | None]:
        """Return the probability of each candidate, or why it is not known."""
        select = route.select
        if select.policy == "cascade":
            return {}, CASCADED
        if select.policy in BY_QUALITY and not request.probabilities and len(select.candidates) > 1:
            return {}, UNPREDICTED
        names = [item.id for item in select.resolved()]
        able = [name for name in names if name not in request.excluded] or names
        decision = self._replay.decide(route, request, frozenset(names) - frozenset(able))
        base = own_propensities(decision)
        if select.explore is None or len(able) == 1:
            return base, None
        weights = {name: select.explore.weights.get(name, 1.0) for name in able}
        return mixed(base, select.explore.ratio, weights), None


def _as_recorded(request: RecordedRequest, *, was_hit: bool) -> WeighedChoice:
    """Return a request of which the evaluated policy makes what the policy that ran made of it."""
    chosen = CACHED if was_hit else request.choice or request.deployment
    same = {chosen: 1.0} if was_hit or not request.propensities else request.propensities
    return weigh(chosen, request_features(request), same, same)


def request_features(request: RecordedRequest) -> Features:
    """Return the kind of a request: size of the prompt, tools, stream, and what was predicted of it."""
    known = [value for value in request.probabilities.values() if value is not None]
    predicted = int(4 * min(known)) if known else -1
    return bisect_left(SIZES, request.prompt_tokens), request.has_tools, request.stream, predicted
