"""PlannedRoute: one route over live deployments, and which of its candidates takes an attempt."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.control import NO_WISHES, CacheControl
from gateway.chat.request import ChatRequest
from gateway.deployments.affinity import NamedSession
from gateway.deployments.health.second_attempts import RetryBudget
from gateway.deployments.live import LiveDeployment
from gateway.deployments.rotation import NOBODY, EjectedCandidates, excluded
from gateway.embedding.encoder import Vector
from gateway.routing.candidate import LiveCandidate, Seen
from gateway.routing.identity import key_of
from gateway.routing.prompt_of import prompt_of
from gateway.routing.routing_request import ExplorationSeed, RoutingRequest
from gateway.routing.shortlist import MANY, Shortlist
from gateway.routing.zone_order import ZoneOrder
from gateway.timeline import Clock
from gateway.upstreams.http1.request import ExchangeTimeouts
from routing_policies.decision import Decision
from routing_policies.exploration.draw import with_exploration
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Route
from routing_policies.policy.members import group_of, is_member
from routing_policies.policy.selection import Cascade, Select
from routing_policies.profile import Profile, profile_of
from routing_policies.quality.cascade import Inquiry
from routing_policies.quality.pairs import (
    pair_predictors_of,
    predicted_quality,
    rated_candidates,
    served_select,
    strongest_of,
    weak_and_strong,
)
from routing_policies.quality.predictor import Predictors
from routing_policies.share import share_of
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_NOBODY: Final[frozenset[str]] = frozenset()


class NextStart(NamedTuple):
    """A deployment that is starting."""

    option: LiveCandidate
    left_s: float
    """Seconds until the deployment is forecast to be ready."""


class PlannedRoute:
    """One route of one revision, with everything that can be computed before a request comes."""

    __slots__ = (
        "_cascade_pair",
        "_clock",
        "_first",
        "_foregone",
        "_members",
        "_rng",
        "_shortlist",
        "_slow_starts",
        "_strongest",
        "_thresholds",
        "_zone",
        "_zones",
        "adapter",
        "cache_candidates",
        "candidates",
        "compares_all",
        "context_tokens",
        "deployment_ids",
        "explore",
        "fallbacks",
        "has_field_rules",
        "hedges",
        "is_paid",
        "options",
        "pair_predictors",
        "plain_timeouts",
        "profile",
        "reads_prompt",
        "route",
        "stream_timeouts",
    )

    def __init__(
        self,
        route: Route,
        deployments: Mapping[str, LiveDeployment],
        clock: Clock,
        rules: Mapping[str, Deployment],
        zone: str | None,
        predictors: Predictors,
        rng: random.Random,
        adapter: str | None = None,
    ) -> None:
        resolved = route.select.resolved()
        members = _one_each(rules[item.id] for item in resolved) if profile_of(route.select).reads_quality else []
        self.pair_predictors = pair_predictors_of(members, predictors)
        """Predictors of quality from the prompt; empty where the choice does not depend on it."""
        select = served_select(route.select, members, self.pair_predictors)
        route = self.route = route if select is route.select else msgspec.structs.replace(route, select=select)
        self.adapter = adapter
        """Adapter that every candidate uses; None: the models alone."""
        self.has_field_rules = route.images != "any" or route.unknown_fields != "pass"
        """True if the route takes fewer fields or images than the API."""
        self._clock, self._rng, self._zone = clock, rng, zone
        self._first = Attempt(zone=zone)
        self.fallbacks: tuple[PlannedRoute, ...] = ()
        """Routes that are tried in this order when no candidate is fit. Their own fallbacks are not followed."""
        hedge = route.select.hedge
        self.hedges = None if hedge is None else RetryBudget(ratio=hedge.max_ratio, begins_empty=True)
        """Budget of second attempts beside the first; None if the route has no hedging."""
        self.explore = route.select.explore
        """Rule of random choices; None if the route does not explore."""
        self.profile: Profile = profile_of(route.select)
        self.reads_prompt = bool(self.pair_predictors) or self.profile.reads_key
        """True if the choice depends on the prompt's content; otherwise `weighed` has nothing to add."""
        self._cascade_pair = _cascade_pair(route.select, members)
        self._strongest = strongest_of(members).id if self.pair_predictors or self._cascade_pair else None
        self._thresholds = predictors.thresholds
        if self._cascade_pair is not None and route.select.min_quality is not None:
            self._thresholds.want(self._cascade_pair, route.select.min_quality)
        self.candidates = tuple((deployments[item.id], item.weight) for item in route.select.resolved())
        self._members = tuple(live for live, _ in self.candidates)
        self.is_paid = any(_is_priced(rules[live.id]) for live in self._members)
        """True if a candidate has a price, so that each answer from the cache saves money."""
        self.options = self._make_options(rules, members)
        self._zones = self._make_zones(rules)
        self._shortlist = self._make_shortlist()
        self.compares_all = self.profile.needs_request and self._shortlist is None
        """True if a decision compares the forecasts of all candidates."""
        self.deployment_ids = tuple(live.id for live, _ in self.candidates)
        self.cache_candidates = "\n".join(sorted({live.model_with(adapter) for live, _ in self.candidates})).encode()
        """Models that may answer: a stored response of theirs may be served wherever the same models may answer."""
        self._foregone = self._decide_alone()
        self._slow_starts = tuple({live.slow_start: None for live in self._members if live.slow_start is not None})
        self.context_tokens = _common_context(self._members)
        """Largest context, in tokens, among the candidates; None when that of any one is unknown."""
        self.stream_timeouts, self.plain_timeouts = _timeouts_of(route)

    def _make_options(
        self, rules: Mapping[str, Deployment], members: Sequence[Deployment]
    ) -> tuple[LiveCandidate, ...]:
        """Return the candidates as decisions compare them, with the quality that the choice counts with."""
        rated = rated_candidates(self.route.select, members, self.pair_predictors)
        is_priced = self.profile.reads_cost
        return tuple(
            LiveCandidate(rated.get(live.group, rules[live.id]), live, weight, is_priced=is_priced)
            for live, weight in self.candidates
        )

    def _make_zones(self, rules: Mapping[str, Deployment]) -> ZoneOrder | None:
        """Return the order of the candidates' zones; None where the choice does not depend on distance."""
        if not self.profile.reads_distance:
            return None
        return ZoneOrder([(live, rules[live.id].zone) for live in self._members], self._zone)

    def _make_shortlist(self) -> Shortlist | None:
        """Return what draws a few of many candidates; None where a decision weighs all."""
        # A draw among all candidates has known probabilities; one among a few drawn before has not.
        is_sampled = len(self.options) > MANY and self.profile.reads_forecasts and self.explore is None
        return Shortlist(self.options) if is_sampled else None

    def wanted(self, tenant: str, control: CacheControl = NO_WISHES) -> CacheIdentity:
        """Return the cache's view of a request of this route."""
        return CacheIdentity(self.route.cache, self.route.id, tenant, self.cache_candidates, control)

    def decide(
        self,
        already_tried: frozenset[str],
        rng: random.Random,
        routing_request: RoutingRequest | None = None,
        avoid: frozenset[str] = _NOBODY,
        seen: Sequence[Seen] = (),
        *,
        is_last_resort: bool = False,
    ) -> Decision:
        """Choose the candidate for this attempt by the current state; one of `avoid` only when no other can serve.

        Without `routing_request`, nothing is forecast. Of many candidates a decision compares and names a few.
        These are `seen`, if given: candidates that admission forecast just now.
        """
        if self._foregone is not None and not already_tried and not avoid:
            first, _ = self.candidates[0]
            if first.is_ready and first.health.is_usual and first.limiter.has_free:
                return self._foregone
        now = self._clock()
        is_drawn = is_last_resort or (bool(seen) and self._shortlist is not None)  # `few` left out its own
        cold = self._cold(now, rng, routing_request) if self._slow_starts and not is_drawn else _NOBODY
        attempt = self._attempt(now, already_tried, avoid, routing_request, cold)
        if seen and self._shortlist is not None and routing_request is not None:
            views = [view for option, view in seen if option.live.is_ready]
            if views:
                return self.profile.decide_among(views, attempt, rng)
        few = (
            None
            if routing_request is None or self._shortlist is None
            else self._shortlist.draw(routing_request, attempt, now, rng)
        )
        out = NOBODY if few is not None else excluded(self._members, now, already_tried)
        views = self._views(few or self.options, now, routing_request, out, seen)
        decision = self.profile.decide(views, attempt, rng)
        if (avoid or cold) and not decision.is_possible:
            return self.decide(already_tried, rng, routing_request, is_last_resort=True)
        return msgspec.structs.replace(decision, is_panic=True) if out.is_panic else decision

    def explored(
        self,
        decision: Decision,
        routing_request: RoutingRequest,
        seed: ExplorationSeed,
        avoid: frozenset[str] = _NOBODY,
    ) -> Decision:
        """Return a first attempt's decision after the draw of exploration; the route explores.

        A draw never takes a candidate that a filter dropped, that is full or too late, that costs more than the route
        allows, or that may not hold or read the request.
        """
        assert self.explore is not None, "the route explores"
        assert decision.ranked is not None, "a choice has candidates"
        cap, by_id = self.route.select.max_request_cost, {option.live.id: option.live for option in self.options}
        admissible = [
            view.id
            for view in decision.ranked.views
            if view.id not in avoid
            and not view.is_full
            and (cap is None or view.cost is None or view.cost <= cap)
            and seed.fits(by_id[view.id], routing_request)
        ]
        is_bound = not self.explore.sessions and self._is_bound(routing_request)
        return with_exploration(decision, self.explore, admissible, seed.request_id, is_bound=is_bound)

    def _is_bound(self, routing_request: RoutingRequest) -> bool:
        """Return whether the request belongs to a deployment by its conversation, or by most of its prompt's cache."""
        if self.profile.reads_key:
            return True
        if not self.profile.reads_affinity:
            return False
        held = max(routing_request.held_tokens.values(), default=0)
        return routing_request.last_deployment is not None or 2 * held > routing_request.price.prompt_tokens

    def few(self, now: float, routing_request: RoutingRequest) -> list[LiveCandidate] | None:
        """Return the few of many candidates that a decision would weigh; None where it weighs all."""
        if self._shortlist is None:
            return None
        cold = self._cold(now, self._rng, routing_request)
        attempt = Attempt(cold=cold) if cold else FIRST_ATTEMPT
        return self._shortlist.draw(routing_request, attempt, now, self._rng)

    def views(self, now: float, routing_request: RoutingRequest) -> list[DeploymentView]:
        """Return every candidate's view for this request, in the route's order."""
        out = excluded(self._members, now)
        return [option.view(now, routing_request, is_ejected=option.live.id in out.ids) for option in self.options]

    def _views(
        self,
        options: Sequence[LiveCandidate],
        now: float,
        routing_request: RoutingRequest | None,
        out: EjectedCandidates,
        seen: Sequence[Seen],
    ) -> list[DeploymentView]:
        """Return every option's view, with forecasts where the profile uses them; views in `seen` are reused."""
        ids = out.ids
        if self._zones is not None:
            places = self._zones.distances(now, ids)
            return [
                option.plain_view(is_ejected=option.live.id in ids, distance=places[option.live.id])
                for option in options
            ]
        if routing_request is None or not self.profile.needs_request:
            return [option.plain_view(is_ejected=option.live.id in ids) for option in options]
        known = {view.id: view for option, view in seen if option.live.is_ready and view.id not in ids} if seen else {}
        return [
            known.get(option.live.id) or option.view(now, routing_request, is_ejected=option.live.id in ids)
            for option in options
        ]

    def _cold(self, now: float, rng: random.Random, routing_request: RoutingRequest | None) -> frozenset[str]:
        """Return the new members that leave this request to others; a conversation stays at one that has answered it.

        A choice by a conversation's key leaves out the same members for all its requests.
        """
        cold = _NOBODY
        key = None if routing_request is None else routing_request.key
        for group in self._slow_starts:
            if group.is_active:
                cold |= group.cold(now, _Draws(rng, key))
        return cold if not cold or routing_request is None else cold - {routing_request.last_deployment or ""}

    def _attempt(
        self,
        now: float,
        already_tried: frozenset[str],
        avoid: frozenset[str],
        routing_request: RoutingRequest | None,
        cold: frozenset[str],
    ) -> Attempt:
        if routing_request is None or not self.profile.reads_targets:
            key = None if routing_request is None else routing_request.key
            if not already_tried and not avoid and key is None and not cold:
                return self._first
            return Attempt(already_tried=already_tried, avoid=avoid, zone=self._zone, key=key, cold=cold)
        ttft_by = routing_request.admission_request.ttft_by
        ttft_slo_s = None if ttft_by is None else ttft_by - now
        tpot_slo_s, key = routing_request.tpot_slo_s, routing_request.key
        return Attempt(already_tried, avoid, ttft_slo_s, tpot_slo_s, self._zone, key, cold)

    def inquiry(self, live: LiveDeployment, routing_request: RoutingRequest | None) -> Inquiry | None:
        """Return the test for the beginning of this deployment's answer; None if every answer is passed on."""
        select = self.route.select
        if select.policy != "cascade" or select.min_quality is None or live.group != self._members[0].group:
            return None
        first_tokens, min_confidence = (select.cascade or Cascade()).first_tokens, select.min_quality
        if self._cascade_pair is not None:
            min_confidence = self._thresholds.confidence(self._cascade_pair, select.min_quality)
        verdict = None if routing_request is None else routing_request.verdict
        for pair_predictor, assessed in () if verdict is None else verdict.assessed:
            if pair_predictor.deployment == live.group:
                model = pair_predictor.predictor.model
                return Inquiry(min_confidence, first_tokens, assessed.prediction.log_odds, model.checkpoints)
        return Inquiry(min_confidence, first_tokens)

    def counterpart(self, deployment: str) -> str | None:
        """Return the deployment whose answers show this one's quality, in a pair or a cascade; None outside of them."""
        group, first = group_of(deployment), self._members[0].group
        weak = [pair_predictor.deployment for pair_predictor in self.pair_predictors]
        if self._cascade_pair is not None and first not in weak:
            weak.append(first)
        if group == self._strongest:
            return self._member_of(weak[0])
        return self._member_of(self._strongest) if group in weak and self._strongest is not None else None

    def _member_of(self, group: str) -> str:
        """Return a candidate of a group, a ready one where there is any."""
        members = [live for live in self._members if live.group == group]
        return max(members, key=lambda live: live.is_ready).id

    @property
    def encoders(self) -> tuple[str, ...]:
        """Return the encoders whose embedding of the prompt the predictions use; empty where they use none."""
        return tuple(
            pair_predictor.predictor.encoder
            for pair_predictor in self.pair_predictors
            if pair_predictor.predictor.encoder
        )

    def weighed(
        self,
        routing_request: RoutingRequest,
        request: ChatRequest,
        tenant: str,
        vector: Vector | None = None,
        session: NamedSession | None = None,
    ) -> RoutingRequest:
        """Return the request with the predicted quality or the conversation's key, where the choice depends on it.

        `vector` is the prompt's embedding by one of `encoders`.
        """
        if self.pair_predictors:
            prompt = prompt_of(request, tenant, kind=self.route.select.kind)
            return msgspec.structs.replace(
                routing_request, verdict=predicted_quality(self.pair_predictors, prompt, vector)
            )
        if not self.profile.reads_key:
            return routing_request
        by = self.route.select.sticky_by or "conversation"
        return msgspec.structs.replace(routing_request, key=key_of(request, tenant, by, session))

    def _decide_alone(self) -> Decision | None:
        """Return the decision for a fit first candidate that no other can beat; None where another can.

        It is computed once, because such a decision reads no other candidate.
        """
        is_first_sure = self.profile.takes_first and not is_member(self.candidates[0][0].id)
        if len(self.candidates) != 1 and (not is_first_sure or self.explore is not None):
            return None
        live, weight = self.candidates[0]
        view = DeploymentView(id=live.id, model=live.model, is_ready=True, weight=weight)
        return self.profile.decide([view], FIRST_ATTEMPT, random.Random(0))

    def adapters(self) -> frozenset[str]:
        """Return the adapters that any candidate has."""
        return frozenset().union(*(live.adapters for live in self._members))

    @property
    def has_others(self) -> bool:
        """Return whether more than one deployment could ever serve the route."""
        return len(self.candidates) > 1 or bool(self.fallbacks)

    @property
    def has_ready(self) -> bool:
        """Return whether any deployment that this route or its fallbacks could choose is ready."""
        return any(live.is_ready for planned in (self, *self.fallbacks) for live in planned._members)

    def next_start(self, now: float) -> NextStart | None:
        """Return the first deployment to become ready, of the route's own candidates and its fallbacks'.

        None where one is ready already, or none is known to be starting.
        """
        if self.has_ready:
            return None
        options = [option for planned in (self, *self.fallbacks) for option in planned.options]
        starts = [NextStart(one, left_s) for one in options if (left_s := one.live.ready_in_s(now)) is not None]
        return min(starts, key=_left_s, default=None)

    def returns_in_s(self) -> float:
        """Return the seconds until the first deployment that refused for load may be tried again; 0 when none did."""
        now = self._clock()
        members = [live for planned in (self, *self.fallbacks) for live in planned._members]
        return min((wait_s for live in members if (wait_s := live.health.pushback_s(now))), default=0.0)

    def shortest_queue(self, decision: Decision) -> LiveDeployment:
        """Return the deployment with the shortest queue for its size among those that lack only a permit."""
        full = [live for live, _ in self.candidates if decision.dropped.get(live.id) == "full"]
        return min(full, key=lambda live: live.limiter.num_waiting / live.limiter.limit)


class _Draws:
    """Numbers by which new members leave a request to others: at random, or by the conversation's key."""

    __slots__ = ("_key", "_rng")

    def __init__(self, rng: random.Random, key: int | None) -> None:
        self._rng = rng
        self._key = key

    def __call__(self, member: str) -> float:
        return self._rng.random() if self._key is None else share_of(self._key, f"warming:{member}")


def _one_each(rules: Iterable[Deployment]) -> list[Deployment]:
    """Return one deployment for each group, under the group's id; members of one group are equally good."""
    found: dict[str, Deployment] = {}
    for rule in rules:
        group = group_of(rule.id)
        if group not in found:
            found[group] = rule if rule.id == group else msgspec.structs.replace(rule, id=group)
    return list(found.values())


def _cascade_pair(select: Select, members: Sequence[Deployment]) -> tuple[str, str] | None:
    """Return the models of a cascade whose threshold follows labels: the first candidate's and the strongest one's."""
    if select.policy != "cascade" or len(members) < 2 or not (select.cascade or Cascade()).calibrate:
        return None
    found = weak_and_strong((members[0], strongest_of(members)))
    return None if found is None or found[0] is not members[0] else (found[0].model, found[1].model)


def _is_priced(rule: Deployment) -> bool:
    price = rule.cost_per_mtok
    return price is not None and price.prompt + price.completion > 0.0


def _common_context(members: Sequence[LiveDeployment]) -> int | None:
    contexts = [live.context_tokens for live in members]
    known = [context for context in contexts if context is not None]
    return max(known) if len(known) == len(contexts) else None


def _timeouts_of(route: Route) -> tuple[ExchangeTimeouts, ExchangeTimeouts]:
    """Return the time limits of a stream, and of a plain answer.

    A plain answer is one piece that comes when all of it was generated: only the total can be late.
    """
    limits = route.timeouts
    connect_s, total_s, gap_s = limits.connect_ms / 1000, limits.total_ms / 1000, limits.inter_token_ms / 1000
    return (
        ExchangeTimeouts(
            connect_s=connect_s, first_byte_s=limits.first_token_ms / 1000, inter_chunk_s=gap_s, total_s=total_s
        ),
        ExchangeTimeouts(connect_s=connect_s, first_byte_s=total_s, inter_chunk_s=gap_s, total_s=total_s),
    )


def _left_s(start: NextStart) -> float:
    return start.left_s
