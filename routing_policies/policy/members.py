"""Members of deployments with `discover`: their ids, and a policy with the members in place of their groups.

A member's id is its group's id, `@` and its address, as in `engine@10.0.0.5:8000`. No id in a policy holds an `@`, so
ids never clash, and the group is part of every member's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from routing_policies.policy.deployment import Deployment, Discover, MemberSourceKey
from routing_policies.policy.document import Policy, Route
from routing_policies.policy.selection import Candidate, Select

SEPARATOR: Final = "@"
VACANT_URL: Final = "builtin:vacant"
"""URL of a group without members; nothing serves there."""


class Address(NamedTuple):
    """Address of one member."""

    host: str
    """IP address or host name."""
    port: int

    def __str__(self) -> str:
        """Return `host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


MembersBySource = Mapping[MemberSourceKey, Sequence[Address]]
"""Known members of each source."""


def group_of(deployment: str) -> str:
    """Return the id of a member's group; any other id as it is."""
    return deployment.partition(SEPARATOR)[0] if SEPARATOR in deployment else deployment


def is_member(deployment: str) -> bool:
    """Return whether an id is that of a discovered member."""
    return SEPARATOR in deployment


def has_groups(policy: Policy) -> bool:
    """Return whether any deployment has members."""
    return any(deployment.discover is not None for deployment in policy.deployments)


def expanded(policy: Policy, members: MembersBySource) -> Policy:
    """Return a policy with the known members in place of each group.

    A group's weight is divided among its members. A group without members stays as one deployment that is never ready.
    Shadows and auditors are the group's first member. Fallbacks keep the group's id, and so do the policy's tests.
    """
    if not has_groups(policy):
        return policy
    found = {item.id: _members_of(item, members) for item in policy.deployments}
    return msgspec.structs.replace(
        policy,
        deployments=tuple(member for group in found.values() for member in group),
        routes=tuple(_route(route, found) for route in policy.routes),
    )


def sample_member(deployment: Deployment) -> Deployment:
    """Return a group as a member at an example address, for checks of its other settings."""
    found = deployment.discover
    return deployment if found is None else _member(deployment, found, Address("192.0.2.1", found.port or 8000))


def _members_of(deployment: Deployment, members: MembersBySource) -> tuple[Deployment, ...]:
    found = deployment.discover
    if found is None:
        return (deployment,)
    addresses = members.get(found.source, ())[: found.max_members]
    if not addresses:
        return (msgspec.structs.replace(deployment, url=VACANT_URL),)
    return tuple(_member(deployment, found, address) for address in addresses)


def _member(deployment: Deployment, found: Discover, address: Address) -> Deployment:
    return msgspec.structs.replace(
        deployment,
        id=f"{deployment.id}{SEPARATOR}{address}".lower(),
        url=f"{found.scheme}://{address}{found.path}",
    )


def _route(route: Route, found: Mapping[str, Sequence[Deployment]]) -> Route:
    select, auditor = _select(route.select, found), route.cache.auditor
    cache = route.cache if auditor is None else msgspec.structs.replace(route.cache, auditor=found[auditor][0].id)
    return msgspec.structs.replace(route, select=select, cache=cache)


def _select(select: Select, found: Mapping[str, Sequence[Deployment]]) -> Select:
    candidates = tuple(
        Candidate(id=member.id, weight=candidate.weight / len(found[candidate.id]))
        for candidate in select.resolved()
        for member in found[candidate.id]
    )
    shadow = select.shadow
    if shadow is not None:
        shadow = msgspec.structs.replace(shadow, id=found[shadow.id][0].id)
    return msgspec.structs.replace(select, candidates=candidates, shadow=shadow)
