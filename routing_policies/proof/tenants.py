"""Proofs about tenants: none can keep another from every permit, and no key reaches more than its tenant.

A request that waits in a lane gets its turn: lanes share a deployment by weight, and tenants share a lane by tokens. So
a tenant can be starved in two ways. Its lane lets nobody wait (`max_queue: 0`), so whoever holds all permits refuses
it. Or its lane's weight is so small beside another's that it gets less than one grant in `GRANTS_PER_TURN`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from routing_policies.policy.document import DEFAULT_LANES, Lane, Route, Tenant
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.references import SECRET_HEADERS
from routing_policies.proof.atoms import Value
from routing_policies.proof.findings import OpenQuestion, Violation, unproven
from routing_policies.proof.requests import ProvenPolicy

GRANTS_PER_TURN: Final = 1_000
"""Grants of a busier lane after which a lane that still had none counts as starved."""
MAX_TENANTS: Final = 200
"""Tenants above which pairs of them are not compared."""
CREDENTIALS: Final = SECRET_HEADERS | {"x-api-key"}
"""Headers that may hold a caller's key."""
_OTHER_KEY: Final = "Bearer another-key-of-this-tenant"


def starved_tenants(proven: ProvenPolicy) -> Iterator[Violation | OpenQuestion]:
    """Yield, for each tenant that another can starve, the first such pair with a request of each."""
    policy = proven.policy
    lanes = policy.lanes or DEFAULT_LANES
    weights = [lane.weight for lane in lanes]
    is_outweighed = max(weights) > (GRANTS_PER_TURN - 1) * min(weights)
    if not is_outweighed and all(lane.max_queue != 0 for lane in lanes):
        return
    if len(policy.tenants) > MAX_TENANTS:
        why = f"there are more than {MAX_TENANTS} tenants"
        yield unproven("starvation", ("tenants",), "no tenant can starve another", why)
        return
    attackers = {tenant.id: _Attacker(proven, tenant) for tenant in policy.tenants}
    for index, victim in enumerate(policy.tenants):
        others = [attackers[tenant.id] for tenant in policy.tenants if tenant.id != victim.id]
        if (found := next(_starved(proven, index, victim, others), None)) is not None:
            yield found


class _Attacker:
    """A tenant that may hold permits, and a request of it for each deployment."""

    def __init__(self, proven: ProvenPolicy, tenant: Tenant) -> None:
        self.tenant = tenant
        self._proven = proven
        self._routes: dict[str, list[tuple[Route, str]]] = {}
        """Routes with their models, by a deployment that may answer; those that exist unwritten first."""
        written = {route.id for route in proven.policy.routes}
        routes = sorted(proven.table.effective_routes(), key=lambda route: route.id in written)
        for route in routes:
            for name in _answering(proven, route):
                self._routes.setdefault(name, []).extend((route, model) for model in route.match.models)
        self._requests: dict[str, TestRequest | None] = {}
        self.lanes = _lanes_of(proven.policy.lanes or DEFAULT_LANES, tenant)

    @cached_property
    def most_in_flight(self) -> float:
        """Largest number of permits that the tenant's quotas let it hold at once."""
        limits = self.tenant.limits
        most = math.inf if limits.max_in_flight is None else limits.max_in_flight
        if limits.requests_per_min is not None:
            longest_ms = max(route.timeouts.total_ms for route in self._proven.table.effective_routes())
            most = min(most, limits.requests_per_min * math.ceil(longest_ms / 60_000))
        return most

    def request_to(self, deployment: str) -> TestRequest | None:
        """Return a request that is sent to a deployment where no other is ready; None without one."""
        if deployment not in self._requests:
            found = (self._request(route, model, deployment) for route, model in self._routes.get(deployment, ()))
            self._requests[deployment] = next((request for request in found if request is not None), None)
        return self._requests[deployment]

    def _request(self, route: Route, model: str, deployment: str) -> TestRequest | None:
        proven = self._proven
        is_candidate = any(item.id == deployment for item in route.select.resolved())
        if proven.chosen(route, {deployment}) != (deployment if is_candidate else None):
            return None
        if route.id in proven.atoms.matches:
            values = proven.first_match(route, model, proven.masks(model, proven.tenants[self.tenant.id])).values
            return None if values is None else proven.request_of(values)
        request = TestRequest(model=model, tenant=self.tenant.id)
        is_direct = not proven.routes_of(model) and not proven.outcome(request).startswith("gets")
        return request if is_direct else None


def _answering(proven: ProvenPolicy, route: Route) -> frozenset[str]:
    """Return the deployments that may answer, those of fallbacks included."""
    routes = {other.id: other for other in proven.policy.routes}
    ids = {item.id for item in route.select.resolved()}
    for name in route.select.fallback:
        ids |= {item.id for item in routes[name].select.resolved()} if name in routes else {name}
    return frozenset(ids)


def _starved(proven: ProvenPolicy, index: int, victim: Tenant, others: Sequence[_Attacker]) -> Iterator[Violation]:
    lanes = proven.policy.lanes or DEFAULT_LANES
    for other in others:
        for tokens, choices in _lane_choices(lanes, victim):
            why = _reason(choices, other.lanes)
            found = None if why is None else _seized(proven, victim, other)
            if found is None:
                continue
            route, request, attacks, permits = found
            message = (
                f"tenant {other.tenant.id} can starve tenant {victim.id} on route {route.id}: nothing keeps "
                f"{other.tenant.id} from all {permits} permits of {', '.join(sorted(_answering(proven, route)))}, and "
                f"{why}"
            )
            shown = msgspec.structs.replace(request, prompt_tokens=tokens, lane=choices[0].id)
            yield Violation(kind="starvation", path=("tenants", index), message=message, requests=(*attacks, shown))


def _seized(
    proven: ProvenPolicy, victim: Tenant, other: _Attacker
) -> tuple[Route, TestRequest, tuple[TestRequest, ...], int] | None:
    """Return a route of the victim all of whose permits the other may hold, with requests of both."""
    seen: set[frozenset[str]] = set()
    for route in proven.policy.routes:
        deployments = _answering(proven, route)
        permits = sum(proven.deployments[name].limits.max_in_flight for name in deployments)
        if other.most_in_flight < permits or deployments in seen:
            continue
        attacks = [other.request_to(name) for name in sorted(deployments)]
        found = [request for request in attacks if request is not None]
        if len(found) < len(attacks):
            seen.add(deployments)
            continue
        for model in route.match.models:
            masks = proven.masks(model, proven.tenants[victim.id])
            values = proven.first_match(route, model, masks).values
            if values is not None:
                by_model = {request.model: request for request in found}
                return route, proven.request_of(values), tuple(by_model.values()), permits
    return None


def _lanes_of(lanes: Sequence[Lane], tenant: Tenant) -> list[Lane]:
    """Return the lanes that a tenant's requests may wait in, those of long prompts included."""
    known = {lane.id: lane for lane in lanes}
    found = [lane for lane in lanes if tenant.lanes is None or lane.id in tenant.lanes]
    for lane in found:
        if lane.longer is not None and known[lane.longer] not in found:
            found.append(known[lane.longer])
    return found


def _lane_choices(lanes: Sequence[Lane], tenant: Tenant) -> Iterator[tuple[int, list[Lane]]]:
    """Yield, for each kind of length, the lanes among which a tenant may choose for a prompt of that length."""
    known = {lane.id: lane for lane in lanes}
    starts = [known[name] for name in tenant.lanes] if tenant.lanes is not None else [*lanes]
    lengths = [1, *sorted({lane.max_prompt_tokens + 1 for lane in lanes if lane.max_prompt_tokens is not None})]
    for tokens in lengths:
        yield tokens, [_lane_for(known, lane, tokens) for lane in starts]


def _lane_for(known: Mapping[str, Lane], lane: Lane, tokens: int) -> Lane:
    while lane.longer is not None and lane.max_prompt_tokens is not None and tokens > lane.max_prompt_tokens:
        lane = known[lane.longer]
    return lane


def _reason(choices: Sequence[Lane], theirs: Sequence[Lane]) -> str | None:
    """Return why each of the lanes to choose from starves; None where one does not."""
    heaviest = max(theirs, key=lambda lane: lane.weight)
    reasons = []
    for lane in choices:
        if lane.max_queue == 0:
            reasons.append(f"lane {lane.id} lets no request wait for one (max_queue: 0)")
        elif heaviest.id != lane.id and heaviest.weight > (GRANTS_PER_TURN - 1) * lane.weight:
            reasons.append(
                f"lane {lane.id} gets one grant for every {heaviest.weight / lane.weight:,.0f} of lane {heaviest.id}"
            )
        else:
            return None
    return "; ".join(dict.fromkeys(reasons))


def wide_keys(proven: ProvenPolicy) -> Iterator[Violation | OpenQuestion]:
    """Yield the conditions by which a key, or another credential, changes the route of a tenant's request."""
    for index, route in enumerate(proven.policy.routes):
        condition = proven.table.conditions.get(route.id)
        names = [] if condition is None else [name for name in condition.headers if name in CREDENTIALS]
        found = proven.reached(route)
        for name in names:
            path, statement = ("routes", index, "match", "when"), f'route {route.id} does not depend on "{name}"'
            if found.values is None:
                if not found.is_exact:
                    yield unproven("wide_key", path, statement)
                continue
            pair = _differing_pair(proven, route, name, found.values)
            if pair is None:
                yield unproven("wide_key", path, statement, "no pair of requests shows it")
                continue
            message = (
                f'route {route.id} depends on "{name}", so two keys of one tenant reach different routes; the second '
                f"request {proven.outcome(pair[1])}"
            )
            yield Violation(kind="wide_key", path=path, message=message, requests=pair)


def _differing_pair(
    proven: ProvenPolicy, route: Route, header: str, values: Mapping[str, Value]
) -> tuple[TestRequest, TestRequest] | None:
    """Return two requests that differ in one credential only and take different routes."""
    first = proven.request_of(values)
    for other in ("", _OTHER_KEY):
        second = proven.request_of({**values, f"header:{header}": other})
        if proven.taken_by(second) != route.id:
            return first, second
    return None
