"""What operators see of finished requests: a list with filters, and one of them explained."""

from __future__ import annotations

from typing import Any, Final, get_args

from gateway.admin.query import Query
from gateway.endpoints import Answer
from gateway.errors import NotFound
from gateway.http.asgi import Scope
from gateway.telemetry.recent import MAX_LISTED, Filter, RecentRequests

REQUESTS_PATH: Final = "/admin/api/requests"
_DEFAULT_LIMIT: Final = 100


class RequestDesk:
    """`GET /admin/api/requests` and `/admin/api/requests/{id}`."""

    def __init__(self, recent: RecentRequests) -> None:
        self._recent = recent

    async def list(self, scope: Scope) -> Answer:
        """The newest first; raises InvalidRequest."""
        query = Query(scope)
        return Answer.json(
            self.listed(
                after=query.integer("after", 0, least=0, most=2**53),
                limit=query.integer("limit", _DEFAULT_LIMIT, least=1, most=MAX_LISTED),
                where=filters(query),
            )
        )

    async def one(self, scope: Scope) -> Answer:
        """Everything that is known of it; raises NotFound."""
        request_id = scope["path"].removeprefix(f"{REQUESTS_PATH}/")
        found = self._recent.find(request_id)
        if found is None:
            raise NotFound(
                "This process does not know the request: it is none of the last few thousand that finished here. "
                "The log has it by its id."
            )
        return Answer.json({"request": found})

    def listed(self, *, after: int, limit: int, where: dict[Filter, str]) -> dict[str, Any]:
        """The document; `last` is what to ask `after` next time."""
        last = self._recent.num_seen
        return {"last": last, "requests": self._recent.newest(after=after, limit=limit, where=where)}


def filters(query: Query) -> dict[Filter, str]:
    """Those that were given."""
    return {name: value for name in get_args(Filter) if (value := query.text(name)) is not None}
