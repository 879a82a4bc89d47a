"""Finished requests of all processes for operators: a list with filters, and one request explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

import msgspec
from starlette.responses import Response

from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.views.explanation import explanation_of
from gateway.admin.views.shared_requests import SharedRequests
from gateway.api.application import ApiResponse
from gateway.errors import NotFound
from gateway.telemetry.records.recent import MAX_LISTED, Filter, RecentRequests, ShownRequest

REQUESTS_PATH: Final = "/admin/api/requests"
_DEFAULT_LIMIT: Final = 100


class Position(NamedTuple):
    """A position in the processes' lists: everything up to it has been read."""

    own: int
    others: dict[str, int]
    """The positions in other processes' lists, by process name."""


class RequestHandlers:
    """`GET /admin/api/requests` and `/admin/api/requests/{id}`."""

    def __init__(self, recent: RecentRequests, shared: SharedRequests, replicas: Callable[[], dict[str, Any]]) -> None:
        """Set up the handlers; `replicas` returns the list of processes that pages show."""
        self._recent = recent
        self._shared = shared
        self._replicas = replicas

    @serves(REQUESTS_PATH)
    async def list(self, request: AdminRequest) -> Response:
        """List the finished requests, newest first. Raises InvalidRequest."""
        document, _ = self.listed(
            after=Position(request.integer("after", 0, least=0, most=2**53), {}),
            limit=request.integer("limit", _DEFAULT_LIMIT, least=1, most=MAX_LISTED),
            where=filters(request),
        )
        return ApiResponse(document)

    @serves(f"{REQUESTS_PATH}/{{id:path}}")
    async def one(self, request: AdminRequest) -> Response:
        """Show one request with all its data, whichever process served it. Raises NotFound."""
        found = await self._shared.find(request.path_params["id"])
        if found is None:
            raise NotFound(
                "No reachable process has the request: it is none of the last few thousand that finished in each. "
                "The log has it by its id."
            )
        return ApiResponse({"request": msgspec.structs.replace(found, why=explanation_of(found))})

    def listed(self, *, after: Position, limit: int, where: dict[Filter, str]) -> tuple[dict[str, Any], Position]:
        """Return the document and the next position; `last` is this process's own part of the position."""
        self._shared.look(where)
        own = self._recent.newest(after=after.own, limit=limit, where=where)
        others = [row for row in self._shared.others(where) if row.seq > after.others.get(row.replica, 0)]
        rows = sorted((*own, *others), key=_came_at, reverse=True)[:limit]
        last = self._recent.num_seen
        ends = dict(after.others)
        for row in others:
            ends[row.replica] = max(row.seq, ends.get(row.replica, 0))
        return {"last": last, "requests": rows, "replicas": self._replicas()}, Position(last, ends)


def _came_at(row: ShownRequest) -> float:
    return row.at


def filters(request: AdminRequest) -> dict[Filter, str]:
    """Return the filters that were given."""
    return {name: value for name in get_args(Filter) if (value := request.text(name)) is not None}
