"""Operations: which of them a deployment serves, and a route as it applies to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from routing_policies.policy.deployment import BUILTIN_ENCODER, Deployment
from routing_policies.policy.document import Route, Trim
from routing_policies.policy.members import group_of
from routing_policies.policy.selection import Candidate, Select
from routing_policies.policy.values import Modality, OperationName
from routing_policies.quality.pairs import strongest_of

CHAT: Final[OperationName] = "chat"
_GENERATED: Final[tuple[OperationName, ...]] = ("chat", "completions")
_EMBEDDED: Final[tuple[OperationName, ...]] = ("embeddings",)


def operations_of(deployment: Deployment) -> tuple[OperationName, ...]:
    """Return the operations that a deployment serves."""
    if deployment.operations is not None:
        return deployment.operations
    return _EMBEDDED if deployment.url == BUILTIN_ENCODER else _GENERATED


def input_modalities_of(deployment: Deployment) -> tuple[Modality, ...] | None:
    """Return the kinds of content that a deployment's model reads; None where they are unknown."""
    if deployment.input_modalities is None and deployment.url == BUILTIN_ENCODER:
        return ("text",)
    return deployment.input_modalities


def route_for(
    route: Route, operation: OperationName, rules: Sequence[Deployment], can_serve: Callable[[str], bool]
) -> Route | None:
    """Return a route as it applies to an operation, or None where none of its candidates serves that.

    What concerns conversations only does not apply to other operations: trimming, similar answers, shadows,
    exploration and the prediction of quality. Without a prediction the strongest candidate comes first, as for a prompt
    that no predictor knows.

    Args:
        route: The route as the policy has it.
        operation: Name of the operation.
        rules: The policy's deployments.
        can_serve: Returns whether the deployment with this id serves the operation.
    """
    candidates = tuple(candidate for candidate in route.select.resolved() if can_serve(candidate.id))
    if not candidates:
        return None
    is_whole = len(candidates) == len(route.select.candidates)
    if operation == CHAT:
        return route if is_whole else msgspec.structs.replace(route, select=_among(route.select, candidates))
    select = route.select if is_whole else _among(route.select, candidates)
    if select.min_quality is not None:
        select = _strongest_first(select, candidates, rules)
    if select.shadow is not None or select.explore is not None:
        select = msgspec.structs.replace(select, shadow=None, explore=None)
    cache = route.cache
    if cache.mode == "exact_then_semantic":
        cache = msgspec.structs.replace(cache, mode="exact", history="exact", auditor=None)
    if select is route.select and cache is route.cache and not route.trim.strategies:
        return route
    return msgspec.structs.replace(route, select=select, cache=cache, trim=Trim())


def _among(select: Select, candidates: tuple[Candidate, ...]) -> Select:
    """Return the choice among fewer candidates; rules that need more than one of them are left out."""
    ids = {group_of(candidate.id) for candidate in candidates}
    if select.policy == "cascade" or (select.canary is not None and select.canary.id not in ids):
        return Select(candidates=candidates, fallback=select.fallback)
    hedge = select.hedge if len(candidates) > 1 else None
    explore = select.explore if len(ids) > 1 else None
    return msgspec.structs.replace(select, candidates=candidates, hedge=hedge, explore=explore)


def _strongest_first(select: Select, candidates: tuple[Candidate, ...], rules: Sequence[Deployment]) -> Select:
    ids = {candidate.id for candidate in candidates}
    strongest = strongest_of([rule for rule in rules if rule.id in ids]).id
    ordered = sorted(candidates, key=lambda candidate: group_of(candidate.id) != group_of(strongest))
    return Select(candidates=tuple(ordered), fallback=select.fallback, hedge=select.hedge)
