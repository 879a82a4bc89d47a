"""Proofs about lengths and fallbacks: candidates hold the prompts of their route, and no fallback leads back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from routing_policies.policy.document import Route
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.proof.findings import OpenQuestion, Violation, unproven
from routing_policies.proof.formula import Leaf
from routing_policies.proof.requests import ProvenPolicy

MOST_BYTES_PER_TOKEN: Final = 128
"""Longest token of common vocabularies, in bytes; text averages 3 to 5."""


def short_contexts(proven: ProvenPolicy) -> Iterator[Violation | OpenQuestion]:
    """Yield the routes whose prompts their candidates cannot hold."""
    for index, route in enumerate(proven.policy.routes):
        found = proven.reached(route)
        if found.values is None:
            continue
        request = proven.request_of(found.values)
        yield from _over_budget(proven, index, route, request)
        yield from _hopeless(proven, index, route, request)


def _over_budget(proven: ProvenPolicy, index: int, route: Route, request: TestRequest) -> Iterator[Violation]:
    """Yield the candidates and fallbacks that hold less than the length to which the route trims prompts."""
    budget = route.trim.budget_tokens
    if budget is None:
        return
    candidates = [(item.id, route) for item in route.select.resolved()]
    routes = {other.id: other for other in proven.policy.routes}
    fallbacks = [
        (item.id, routes[name])
        for name in route.select.fallback
        if name in routes
        for item in routes[name].select.resolved()
    ]
    lone = [(name, None) for name in route.select.fallback if name not in routes]
    seen: set[str] = set()
    for name, chooser in (*candidates, *fallbacks, *lone):
        context = proven.deployments[name].context_tokens
        if context is None or context > budget or name in seen:
            continue
        seen.add(name)
        if chooser is not None and proven.chosen(chooser, {name}) != name:
            continue
        message = (
            f"route {route.id}: {name} holds {context} tokens, prompt and answer together, and prompts are trimmed to "
            f"{budget} only; a prompt of {budget} tokens fails where {name} is the one that is ready"
        )
        shown = msgspec.structs.replace(request, prompt_tokens=budget)
        yield Violation(
            kind="context", path=("routes", index, "trim", "budget_tokens"), message=message, requests=(shown,)
        )


def _hopeless(
    proven: ProvenPolicy, index: int, route: Route, request: TestRequest
) -> Iterator[Violation | OpenQuestion]:
    """Yield the route where every prompt that it takes is longer than each of its candidates' contexts."""
    contexts = [proven.deployments[item.id].context_tokens for item in route.select.resolved()]
    known = [context for context in contexts if context is not None]
    if route.match.when is None or len(known) < len(contexts):
        return
    most = max(known)
    if (request.prompt_bytes or len(request.text)) <= most * MOST_BYTES_PER_TOKEN and request.turns <= most:
        return
    atoms = proven.atoms
    fitting: list[Leaf] = [
        atoms.value_leaf("prompt_bytes", lambda value: int(value) <= most * MOST_BYTES_PER_TOKEN),
        atoms.value_leaf("turns", lambda value: int(value) <= most),
    ]
    results = [proven.first_match(route, model, proven.masks(model), fitting) for model in route.match.models]
    if any(found.values is not None for found in results):
        return
    path = ("routes", index, "match", "when")
    if not all(found.is_exact for found in results):
        yield unproven("context", path, f"route {route.id} takes prompts that its candidates hold")
        return
    message = (
        f"route {route.id} takes only prompts that none of its candidates holds: the largest context has {most} "
        f"tokens, {most * MOST_BYTES_PER_TOKEN} bytes at the very most"
    )
    yield Violation(kind="context", path=path, message=message, requests=(request,))


def fallback_cycles(proven: ProvenPolicy) -> Iterator[Violation]:
    """Yield the circles of routes that fall back on each other, each once."""
    routes = {route.id: route for route in proven.policy.routes}
    places = {route.id: index for index, route in enumerate(proven.policy.routes)}
    seen: set[frozenset[str]] = set()
    for circle in _circles(routes):
        members = frozenset(circle)
        found = [proven.reached(routes[name]) for name in circle]
        if members in seen or not all(_leads_on(proven, routes[a], routes[b]) for a, b in _steps(circle)):
            continue
        seen.add(members)
        requests = tuple(proven.request_of(one.values) for one in found if one.values is not None)
        if len(requests) < len(circle):
            continue  # a fallback's own fallbacks are not followed, so a circle needs requests at each of its routes
        ladder = [lane.id for lane in proven.policy.lanes if "small_model" in lane.on_overload]
        overload = f", and so does overload in {', '.join(ladder)} (small_model)" if ladder else ""
        message = (
            f"routes {' → '.join((*circle, circle[0]))} fall back on each other: an outage at one sends its requests "
            f"to the next and theirs back{overload}"
        )
        path = ("routes", places[circle[0]], "select", "fallback")
        yield Violation(kind="fallback_cycle", path=path, message=message, requests=requests)


def _leads_on(proven: ProvenPolicy, route: Route, other: Route) -> bool:
    """Return whether the other route has a deployment left where this one has none."""
    own = {item.id for item in route.select.resolved()}
    left = [item.id for item in other.select.resolved() if item.id not in own]
    return proven.chosen(route, ()) is None and bool(left) and proven.chosen(other, left) is not None


def _steps(circle: Sequence[str]) -> list[tuple[str, str]]:
    return [*zip(circle, (*circle[1:], circle[0]), strict=True)]


def _circles(routes: dict[str, Route]) -> Iterator[tuple[str, ...]]:
    """Yield, for each route, a shortest way of fallbacks from it back to it."""
    for start in routes:
        ways: dict[str, tuple[str, ...]] = {start: (start,)}
        waiting = [start]
        while waiting:
            name = waiting.pop(0)
            for target in routes[name].select.fallback:
                if target == start:
                    yield ways[name]
                    waiting = []
                    break
                if target in routes and target not in ways:
                    ways[target] = (*ways[name], target)
                    waiting.append(target)
