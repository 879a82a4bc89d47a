"""CacheIdentity: whose request it is and what may answer it, as far as the cache cares."""

from __future__ import annotations

import msgspec

from gateway.cache.exact.control import NO_WISHES, CacheControl
from routing_policies.policy.document import Cache


class CacheIdentity(msgspec.Struct, frozen=True):
    """Whose request it is and what may answer it, as far as the cache cares."""

    rule: Cache
    route: str
    tenant: str
    candidates: bytes
    """What tells the route's candidates apart from another's."""
    control: CacheControl = NO_WISHES
