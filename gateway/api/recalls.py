"""`GET /v1/recalls`: the notices of a tenant about similar answers that proved wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest, NotFound, Shed, ShedReason
from gateway.http.asgi import find_headers
from gateway.recalls.notice import Recall, shown_notice
from gateway.recalls.recall_store import RecallStore
from gateway.routing.snapshot import PolicySnapshot
from gateway.store.base import StoreUnavailable

RECALLS_PATH: Final = "/v1/recalls"
MAX_RECALLS: Final = 1000
_NUM_RECALLS: Final = 100
_MAX_DIGITS: Final = 16


class RecallPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of recall notices, oldest first."""

    object: Literal["list"] = "list"
    data: list[Recall]
    has_more: bool
    cursor: str
    """The value of `after` for the next page, also where this one is empty."""


class RecallHandlers:
    """Handlers of recall notices; another tenant's do not exist."""

    def __init__(self, policy: Callable[[], PolicySnapshot], store: RecallStore | None) -> None:
        """Handle them; without a store the settings switch recalls off."""
        self._policy = policy
        self._store = store

    def route(self) -> Route:
        """Return the route of the public listener."""
        return Route(RECALLS_PATH, self.list)

    async def list(self, request: Request) -> Response:
        """Return a page of notices. Raises InvalidApiKey, InvalidRequest, NotFound, or Shed without the store."""
        host = request.client.host if request.client else None
        tenant = self._policy().keys.authenticate(find_headers(request.scope, b"authorization"), host).tenant
        query = request.query_params
        after, limit = _number(query.get("after"), "after", 0), _number(query.get("limit"), "limit", _NUM_RECALLS)
        if not 1 <= limit <= MAX_RECALLS:
            raise InvalidRequest(f"`limit` must be between 1 and {MAX_RECALLS}.", param="limit")
        if self._store is None:
            raise NotFound("This gateway has no recalls: `cache.recalls.retention_days` is 0 in its settings.")
        try:
            notices = await self._store.notices(tenant)
        except StoreUnavailable:
            raise Shed(
                ShedReason.OVERLOAD,
                lane="",
                message="The store of recall notices cannot be read now. Try again.",
                hint="Try again with the same cursor.",
            ) from None
        found = [notice for notice in notices if notice.position > after]
        page = found[:limit]
        cursor = page[-1].position if page else after
        return ApiResponse(
            RecallPage(data=[shown_notice(notice) for notice in page], has_more=len(found) > limit, cursor=str(cursor))
        )


def _number(given: str | None, name: str, default: int) -> int:
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        what = "the `cursor` of an earlier page" if name == "after" else f"between 1 and {MAX_RECALLS}"
        raise InvalidRequest(f"`{name}` must be {what}.", param=name)
    return int(given)
