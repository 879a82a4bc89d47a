"""What operators see of the cache, and how they throw answers out of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gateway.api.routes import SmallResponse
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.exact_tier import Selection
from gateway.errors import InvalidRequest
from gateway.http.asgi import Scope

CACHE_PATH = "/admin/api/cache"
PURGE_PATH = "/admin/api/cache/purge"
_MAX_LISTED = 100

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Purge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries; at least one condition, and all that are given must hold."""

    id: _Name | None = None
    tenant: _Name | None = None
    route: _Name | None = None
    text: _Name | None = None
    dry_run: bool = True


class CacheHandlers:
    """`POST /admin/api/cache/purge`."""

    def __init__(self, cache: ExactCache) -> None:
        self._cache = cache

    async def purge(self, scope: Scope, document: Any) -> SmallResponse:
        """What the conditions cover, and its removal when `dry_run` is false. Raises InvalidRequest."""
        try:
            asked = msgspec.convert(document, Purge)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"The purge is not what it should be: {error}.") from None
        selection = Selection(id=asked.id, tenant=asked.tenant, route=asked.route, text=asked.text)
        if selection == Selection():
            raise InvalidRequest("Name at least one of id, tenant, route, text; nothing was removed.")
        covered = self._cache.purge(selection, dry_run=asked.dry_run)
        listed = [_shown(entry) for entry in covered[:_MAX_LISTED]]
        return SmallResponse.json({"dry_run": asked.dry_run, "covered": len(covered), "entries": listed})


def _shown(entry: CacheEntry) -> dict[str, Any]:
    """Without the answer and the question: they are the tenant's."""
    return {
        "id": entry.id,
        "tenant": entry.tenant,
        "route": entry.route,
        "deployment": entry.deployment,
        "created_at": entry.created_at,
        "bytes": entry.num_bytes,
    }
