"""Proofs about tenants: none can keep another from every permit, and no key reaches more than its tenant.

A request that waits in a lane gets its turn: lanes share a deployment by weight, and tenants share a lane by tokens. So
a tenant can be starved in two ways. Its lane lets nobody wait (`max_queue: 0`), so whoever holds all permits refuses
it. Or its lane's weight is so small beside another's that it gets less than one grant in `GRANTS_PER_TURN`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from routing_policies.policy.document import DEFAULT_LANES, Lane, Route, Tenant, TestRequest
from routing_policies.policy.references import SECRET_HEADERS
from routing_policies.proof.atoms import Value
from routing_policies.proof.findings import OpenQuestion, Violation
from routing_policies.proof.requests import ProvenPolicy

GRANTS_PER_TURN: Final = 1_000
"""Grants of a busier lane after which a lane that still had none counts as starved."""
CREDENTIALS: Final = SECRET_HEADERS | {"x-api-key"}
"""Headers that may hold a caller's key."""
_OTHER_KEY: Final = "Bearer another-key-of-this-tenant"


@dataclass(frozen=True, slots=True)
class _Reach:
    """A route that a tenant's requests take, with one of them."""

    route: Route
    request: TestRequest
    deployments: frozenset[str]
    """Deployments that may answer, those of fallbacks included."""


def starved_tenants(proven: ProvenPolicy) -> Iterator[Violation]:
    """Yield, for each tenant that another can starve, the first such pair with a request of each."""
    policy = proven.policy
    if len(policy.tenants) < 2 or not _may_starve(policy.lanes or DEFAULT_LANES):
        return
    reaches = {tenant.id: list(_reaches(proven, tenant)) for tenant in policy.tenants}
    for index, victim in enumerate(policy.tenants):
        found = next(
            (
                violation
                for other in policy.tenants
                if other.id != victim.id
                for violation in _starved(proven, index, victim, other, reaches)
            ),
            None,
        )
        if found is not None:
            yield found


def _may_starve(lanes: Sequence[Lane]) -> bool:
    weights = [lane.weight for lane in lanes]
    return any(lane.max_queue == 0 for lane in lanes) or max(weights) > (GRANTS_PER_TURN - 1) * min(weights)


def _reaches(proven: ProvenPolicy, tenant: Tenant) -> Iterator[_Reach]:
    for model in dict.fromkeys(name for route in proven.policy.routes for name in route.match.models):
        masks = proven.masks(model, proven.tenants[tenant.id])
        for route in proven.routes_of(model):
            found = proven.first_match(route, model, masks)
            if found.values is not None:
                yield _Reach(route, proven.request_of(found.values), _answering(proven, route))
    yield from _direct(proven, tenant)


def _direct(proven: ProvenPolicy, tenant: Tenant) -> Iterator[_Reach]:
    """Yield the routes that exist unwritten, which take a deployment by its name."""
    written = {route.id for route in proven.policy.routes}
    for route in proven.table.effective_routes():
        if route.id in written or proven.routes_of(route.match.models[0]):
            continue
        request = TestRequest(model=route.match.models[0], tenant=tenant.id)
        if not proven.outcome(request).startswith("gets"):
            yield _Reach(route, request, _answering(proven, route))


def _answering(proven: ProvenPolicy, route: Route) -> frozenset[str]:
    routes = {other.id: other for other in proven.policy.routes}
    ids = {item.id for item in route.select.resolved()}
    for name in route.select.fallback:
        ids |= {item.id for item in routes[name].select.resolved()} if name in routes else {name}
    return frozenset(ids)


def _starved(
    proven: ProvenPolicy, index: int, victim: Tenant, other: Tenant, reaches: Mapping[str, Sequence[_Reach]]
) -> Iterator[Violation]:
    theirs = reaches[other.id]
    reachable = frozenset[str]().union(*(reach.deployments for reach in theirs))
    for mine in reaches[victim.id]:
        if not mine.deployments <= reachable:
            continue
        permits = sum(proven.deployments[name].limits.max_in_flight for name in mine.deployments)
        if _most_in_flight(proven, other, theirs) < permits:
            continue
        attacks = _attacks(proven, theirs, mine.deployments)
        lanes = proven.policy.lanes or DEFAULT_LANES
        for tokens, choices in _lane_choices(lanes, victim):
            why = _reason(choices, _lanes_of(lanes, other))
            if attacks is None or why is None:
                continue
            message = (
                f"tenant {other.id} can starve tenant {victim.id} on route {mine.route.id}: nothing keeps {other.id} "
                f"from all {permits} permits of {', '.join(sorted(mine.deployments))}, and {why}"
            )
            shown = msgspec.structs.replace(mine.request, prompt_tokens=tokens, lane=choices[0].id)
            yield Violation(
                kind="starvation", path=("tenants", index), message=message, requests=(*attacks, shown)
            )
            return


def _most_in_flight(proven: ProvenPolicy, tenant: Tenant, reaches: Sequence[_Reach]) -> float:
    """Return the largest number of permits that a tenant's quotas let it hold at once."""
    limits = tenant.limits
    most = math.inf if limits.max_in_flight is None else limits.max_in_flight
    if limits.requests_per_min is not None and reaches:
        longest_ms = max(reach.route.timeouts.total_ms for reach in reaches)
        most = min(most, limits.requests_per_min * math.ceil(longest_ms / 60_000))
    return most


def _attacks(
    proven: ProvenPolicy, reaches: Sequence[_Reach], deployments: frozenset[str]
) -> tuple[TestRequest, ...] | None:
    """Return requests that are sent to each deployment where it is the one that is free; None where one is never."""
    requests: dict[str, TestRequest] = {}
    for name in sorted(deployments):
        reach = next((one for one in reaches if _goes_to(proven, one, name)), None)
        if reach is None:
            return None
        requests.setdefault(reach.request.model, reach.request)
    return tuple(requests.values())


def _goes_to(proven: ProvenPolicy, reach: _Reach, deployment: str) -> bool:
    is_candidate = any(item.id == deployment for item in reach.route.select.resolved())
    if is_candidate:
        return proven.chosen(reach.route, {deployment}) == deployment
    return deployment in reach.deployments and proven.chosen(reach.route, ()) is None


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
            path = ("routes", index, "match", "when")
            if found.values is None:
                if not found.is_exact:
                    message = f'route {route.id} does not depend on "{name}": not proven, the search hit its bound'
                    yield OpenQuestion(kind="wide_key", path=path, message=message)
                continue
            pair = _told_apart(proven, route, name, found.values)
            if pair is None:
                message = f'route {route.id} does not depend on "{name}": not proven, no pair of requests shows it'
                yield OpenQuestion(kind="wide_key", path=path, message=message)
                continue
            message = (
                f'route {route.id} depends on "{name}", so two keys of one tenant reach different routes; the second '
                f"request {proven.outcome(pair[1])}"
            )
            yield Violation(kind="wide_key", path=path, message=message, requests=pair)


def _told_apart(
    proven: ProvenPolicy, route: Route, header: str, values: Mapping[str, Value]
) -> tuple[TestRequest, TestRequest] | None:
    """Return two requests that differ in one credential only and take different routes."""
    first = proven.request_of(values)
    for other in ("", _OTHER_KEY):
        second = proven.request_of({**values, f"header:{header}": other})
        if proven.taken_by(second) != route.id:
            return first, second
    return None
