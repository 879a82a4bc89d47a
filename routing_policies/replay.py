"""Replay: recorded requests sent through a policy, to estimate its effect on them.

It is a model of the gateway. Routes and exact cache hits follow the policy exactly. The deployment is chosen among idle
ones by their measured latencies. TTFTs are the recorded ones where the deployment is unchanged, else drawn from its
TTFTs for requests of that size. Both policies are replayed by the same model, so its omissions affect both sides.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from math import sqrt
from typing import Final, Literal
from zlib import crc32

import msgspec

from routing_policies.decision import Decision
from routing_policies.estimation.estimators import Price, cost_of
from routing_policies.matching import NoRoute, RequestView, RouteTable
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Policy, Route
from routing_policies.profile import Profile, profile_of
from routing_policies.quality.pairs import strongest_of
from routing_policies.views import Attempt, DeploymentView

MAX_REMEMBERED: Final = 500_000
"""Number of entries in the replayed cache."""
SIZES: Final = (256, 1_024, 4_096, 16_384)
_Z: Final = 1.96
BY_QUALITY: Final = frozenset({"quality_then_latency", "cost_cap", "scored"})
"""Selection policies that use predicted quality."""

Ended = Literal["answered", "shed", "failed"]


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Recording of one request; without text, its content cannot be reconstructed."""

    at: float
    """Time of arrival, in seconds since 1970."""
    tenant: str
    model: str
    question: str
    """Digest of the prompt, equal for requests that an exact cache treats as equal, for any client."""
    user: str = ""
    """Digest of the field `user`."""
    headers: dict[str, str] = {}
    """Headers that the policy read."""
    turns: int = 1
    prompt_bytes: int = 0
    has_tools: bool = False
    has_images: bool = False
    stream: bool = False
    text: str | None = None
    """Text of the last message; only where texts are recorded."""
    probabilities: dict[str, float | None] = {}
    """P(the weaker model is as good as the stronger one) by `pair_key`; None where it was unknown."""
    lane: str = ""
    route: str = ""
    deployment: str = ""
    """Deployment that answered; empty for the cache."""
    cache: str = ""
    """Cache result; `off` where the policy disables the cache, `bypass` where the client does."""
    ended: Ended = "answered"
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft_ms: float | None = None
    policy: str = ""
    id: str = ""
    """Request id, by which later verdicts name the request."""
    choice: str = ""
    """Candidate of the first routing decision; `deployment` differs after a retry, a hedge or a hand-over."""
    propensities: dict[str, float] = {}
    """Probability of each candidate in that decision under the policy that ran; empty where there was none."""
    excluded: tuple[str, ...] = ()
    """Candidates that could not have been chosen, because a filter dropped every member of theirs."""
    audit_probability: float = 0.0
    """Probability with which this similar answer was drawn for an audit."""
    is_audited: bool = False
    """True if it was drawn, whether or not the audit came to a verdict."""

    def fact(self, name: str) -> str | int | bool:
        """Return the value of `request.NAME`; text that was not recorded is empty."""
        value: str | int | bool | None = getattr(self, name)
        return "" if value is None else value


class RecordedVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Recorded verdict on the answer of an earlier request; its first field tells its line from a request's."""

    verdict_of: str
    """Request id."""
    tenant: str
    """Tenant of the verdict; it counts only for a request of the same tenant."""
    at: float
    by: Literal["feedback", "audit"]
    is_wrong: bool = True


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one policy over all requests."""

    routes: dict[str, float]
    """Shares of all requests; those without a route are in `errors`."""
    deployments: dict[str, float]
    """Shares of all requests that each answers; `cache` is one of the keys."""
    hit_ratio: float
    """Share of the answered requests."""
    hit_ratio_error: float
    """Half the width of the hit ratio's 95 % interval."""
    cost_per_1k: float | None
    shed_ratio: float
    """Share of all requests."""
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    errors: dict[str, int]
    """Number of requests that the policy refuses, by error code."""


class ReplayOutcome(msgspec.Struct, frozen=True, gc=False):
    """Result of one request under a policy."""

    route: str
    deployment: str
    is_hit: bool
    ended: Ended
    ttft_ms: float | None
    cost: float | None
    error: str = ""


class Measured:
    """TTFTs of each deployment in the recording, by size of the prompt."""

    def __init__(self, requests: Iterable[RecordedRequest]) -> None:
        self._times: dict[str, list[list[float]]] = {}
        self._hits: list[float] = []
        for request in requests:
            if request.ttft_ms is None:
                continue
            if request.cache.startswith("hit"):
                self._hits.append(request.ttft_ms)
            elif request.deployment:
                buckets = self._times.setdefault(request.deployment, [[] for _ in range(len(SIZES) + 1)])
                buckets[_bucket(request.prompt_tokens)].append(request.ttft_ms)
        for buckets in self._times.values():
            for bucket in buckets:
                bucket.sort()
        self._medians = {id: [_middle(bucket) for bucket in buckets] for id, buckets in self._times.items()}
        self.hit_ms = _middle(sorted(self._hits)) or 1.0

    def forecast_s(self, deployment: str, prompt_tokens: int) -> float | None:
        """Return the median TTFT in seconds, or None for a deployment without answers of about this size."""
        medians = self._medians.get(deployment)
        found = None if medians is None else medians[_bucket(prompt_tokens)]
        return None if found is None else found / 1000

    def draw_ms(self, deployment: str, prompt_tokens: int, rng: random.Random) -> float | None:
        """Return one of the recorded TTFTs in milliseconds at random, or None without any."""
        buckets = self._times.get(deployment)
        seen = [] if buckets is None else buckets[_bucket(prompt_tokens)]
        return rng.choice(seen) if seen else None


class Replay:
    """Replay of one policy; requests must come in order of time."""

    def __init__(self, policy: Policy, measured: Measured, *, trusts: frozenset[str], seed: int = 0) -> None:
        """Create an empty cache and the policy's routes.

        Args:
            policy: The policy to replay.
            measured: Latencies in the recording.
            trusts: Routes whose recorded choice of a deployment stands, because they are unchanged.
            seed: Seed of the random choices.
        """
        self._table = RouteTable(policy)
        self._rules = {item.id: item for item in policy.deployments}
        self._profiles: dict[str, Profile] = {}
        self._lanes = {lane.id: lane for lane in policy.lanes}
        self._measured = measured
        self._trusts = trusts
        self._rng = random.Random(seed)
        self._stored: dict[tuple[str, str, str], float] = {}

    def send(self, request: RecordedRequest) -> ReplayOutcome:
        """Return the result of one request."""
        try:
            route = self.route_of(request)
        except NoRoute as error:
            return ReplayOutcome("", "", False, "failed", None, None, error.code)
        if self._hits(route, request):
            return ReplayOutcome(route.id, "cache", True, "answered", self._measured.hit_ms, 0.0)
        deployment = self._deployment(route, request)
        is_same = deployment == request.deployment
        if request.ended != "answered" and (is_same or not request.deployment):
            return ReplayOutcome(route.id, deployment, False, request.ended, None, None)
        price = Price(request.prompt_tokens, request.prompt_tokens, request.output_tokens)
        ttft_ms = request.ttft_ms if is_same else None
        if ttft_ms is None:
            ttft_ms = self._measured.draw_ms(deployment, request.prompt_tokens, self._rng)
        self._keep(route, request)
        cost = cost_of(self._rules[deployment].cost_per_mtok, price) if deployment in self._rules else None
        return ReplayOutcome(route.id, deployment, False, "answered", ttft_ms, cost)

    def measure(self, measured: Measured) -> None:
        """Choose and draw by other latencies from here on."""
        self._measured = measured

    def route_of(self, request: RecordedRequest) -> Route:
        """Return the route of a request; raises NoRoute."""
        view = RequestView(model=request.model, tenant=request.tenant, headers=request.headers, facts=request)
        return self._table.match(view)

    def _hits(self, route: Route, request: RecordedRequest) -> bool:
        key = _cache_key(route, request)
        if key is None:
            return False
        stored_at = self._stored.get(key)
        if stored_at is not None and request.at - stored_at < route.cache.ttl_s:
            return True
        # Digests do not determine similarity, so recorded semantic hits stay hits.
        return route.cache.mode == "exact_then_semantic" and request.cache == "hit_semantic"

    def _keep(self, route: Route, request: RecordedRequest) -> None:
        key = _cache_key(route, request)
        if key is None:
            return
        if len(self._stored) >= MAX_REMEMBERED:
            del self._stored[next(iter(self._stored))]
        self._stored[key] = request.at

    def _deployment(self, route: Route, request: RecordedRequest) -> str:
        ids = [item.id for item in route.select.resolved()]
        stands = route.id in self._trusts or (route.select.policy in BY_QUALITY and not request.probabilities)
        if request.deployment in ids and (stands or route.select.policy == "cascade"):
            return request.deployment
        if len(ids) == 1:
            return ids[0]
        decision = self.decide(route, request)
        return decision.deployment or ids[0]

    def decide(self, route: Route, request: RecordedRequest, excluded: Collection[str] = ()) -> Decision:
        """Return the choice among idle candidates by their measured latencies, without those `excluded`."""
        profile = self._profiles.get(route.id)
        if profile is None:
            profile = self._profiles[route.id] = profile_of(route.select)
        members = [self._rules[item.id] for item in route.select.resolved() if item.id in self._rules]
        strongest = strongest_of(members) if profile.reads_quality and members else None
        views = [
            self._view(self._rules[item.id], item.weight, request, strongest)
            for item in route.select.resolved()
            if item.id in self._rules and item.id not in excluded
        ]
        lane = self._lanes.get(request.lane)
        slo = None if lane is None or lane.slo is None else lane.slo.ttft_p95_ms / 1000
        key = crc32(f"{request.tenant}\0{request.question}".encode())
        return profile.decide(views, Attempt(ttft_slo_s=slo, key=key), self._rng)

    def _view(
        self, deployment: Deployment, weight: float, request: RecordedRequest, strongest: Deployment | None
    ) -> DeploymentView:
        quality, is_known = _foretold(deployment, strongest, request)
        return DeploymentView(
            id=deployment.id,
            model=deployment.model,
            is_ready=True,
            max_in_flight=deployment.limits.max_in_flight,
            weight=weight,
            forecast_ttft_s=self._measured.forecast_s(deployment.id, request.prompt_tokens),
            cost=cost_of(
                deployment.cost_per_mtok, Price(request.prompt_tokens, request.prompt_tokens, request.output_tokens)
            ),
            quality=quality,
            is_known_prompt=is_known,
            prompt_tokens=request.prompt_tokens,
            zone=deployment.zone,
        )


def pair_key(weak: str, strong: str) -> str:
    """Return the key of a pair of models in a recording."""
    return f"{weak} > {strong}"


def summarize(outcomes: Sequence[ReplayOutcome]) -> Side:
    """Return the shares, ratios and quantiles of one side."""
    num = max(len(outcomes), 1)
    answered = [outcome for outcome in outcomes if outcome.ended == "answered"]
    hit_ratio = sum(outcome.is_hit for outcome in answered) / max(len(answered), 1)
    costs = [outcome.cost for outcome in answered if outcome.cost is not None]
    times = sorted(outcome.ttft_ms for outcome in answered if outcome.ttft_ms is not None)
    return Side(
        routes=_shares([outcome.route for outcome in outcomes if not outcome.error], num),
        deployments=_shares([outcome.deployment for outcome in answered], num),
        hit_ratio=hit_ratio,
        hit_ratio_error=_Z * sqrt(hit_ratio * (1 - hit_ratio) / max(len(answered), 1)),
        cost_per_1k=1000 * sum(costs) / len(costs) if any(costs) else None,
        shed_ratio=sum(outcome.ended == "shed" for outcome in outcomes) / num,
        ttft_p50_ms=times[len(times) // 2] if times else None,
        ttft_p95_ms=times[int(0.95 * len(times))] if times else None,
        errors=_counts([outcome.error for outcome in outcomes if outcome.error]),
    )


def unchanged_routes(old: Policy, new: Policy) -> frozenset[str]:
    """Return the routes that choose among the same deployments in the same way in both policies."""
    before = {route.id: route.select for route in RouteTable(old).effective_routes()}
    same = {item.id for item in new.deployments if item in old.deployments}
    return frozenset(
        route.id
        for route in RouteTable(new).effective_routes()
        if before.get(route.id) == route.select and {item.id for item in route.select.resolved()} <= same
    )


def moves(
    old: Sequence[ReplayOutcome], new: Sequence[ReplayOutcome], field: Literal["route", "deployment"]
) -> dict[tuple[str, str], int]:
    """Return the number of requests that move from one route or deployment to another, most first."""
    found: dict[tuple[str, str], int] = {}
    for before, after in zip(old, new, strict=True):
        pair = getattr(before, field), getattr(after, field)
        if pair[0] != pair[1]:
            found[pair] = found.get(pair, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _cache_key(route: Route, request: RecordedRequest) -> tuple[str, str, str] | None:
    cache = route.cache
    if cache.mode == "off" or request.cache == "bypass":
        return None
    owner = {"shared": "", "tenant": request.tenant, "user": f"{request.tenant}\0{request.user}"}[cache.scope]
    if cache.scope == "user" and not request.user:
        return None
    return ",".join(sorted(item.id for item in route.select.resolved())), owner, request.question


def _foretold(deployment: Deployment, strongest: Deployment | None, request: RecordedRequest) -> tuple[float, bool]:
    """Return the expected quality of a deployment's answer, and whether it is reliable.

    Without a recorded prediction, the deployment's `quality` applies.
    """
    if strongest is None:
        return deployment.quality, True
    key = pair_key(deployment.model, strongest.model)
    if key not in request.probabilities:
        return deployment.quality, True
    probability = request.probabilities[key]
    return (0.0, False) if probability is None else (probability * strongest.quality, True)


def _bucket(tokens: int) -> int:
    return bisect_left(SIZES, tokens)


def _middle(ordered: Sequence[float]) -> float | None:
    return ordered[len(ordered) // 2] if ordered else None


def _counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _shares(names: Iterable[str], num: int) -> dict[str, float]:
    return {name: count / num for name, count in sorted(_counts(names).items())}
