"""Stored responses: `GET` and `DELETE /v1/responses/{id}`, and `GET /v1/responses/{id}/input_items`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.application import ApiResponse
from gateway.api.nearest import shown_path
from gateway.dialects.responses.exchange import RESPONSES_PATH
from gateway.dialects.responses.response_store import ResponseStore, StoredResponse
from gateway.errors import InvalidRequest, NotFound
from gateway.http.asgi import find_headers
from gateway.routing.snapshot import PolicySnapshot

RESPONSE_PATH: Final = RESPONSES_PATH + "/{response_id}"
INPUT_ITEMS_PATH: Final = RESPONSE_PATH + "/input_items"
UNSERVED_PATHS: Final = (RESPONSES_PATH + "/input_tokens", RESPONSES_PATH + "/compact", RESPONSE_PATH + "/cancel")
"""Endpoints of OpenAI's API, called by POST, that this gateway does not have."""
_SERVED: Final = (
    f"POST {RESPONSES_PATH}, GET and DELETE {RESPONSES_PATH}/{{id}}, and GET {RESPONSES_PATH}/{{id}}/input_items"
)
_MAX_PAGE: Final = 100
_PAGE: Final = 20


class DeletedResponse(msgspec.Struct, frozen=True):
    """The outcome of a deletion."""

    id: str
    object: str = "response"
    deleted: bool = True


class ResponseItems(msgspec.Struct, frozen=True):
    """A page of a response's input items."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class ResponseHandlers:
    """Handlers of stored responses; another tenant's do not exist."""

    def __init__(self, policy: Callable[[], PolicySnapshot], store: ResponseStore) -> None:
        self._policy = policy
        self._store = store

    def routes(self) -> list[Route]:
        """Return the routes of the public listener."""
        return [
            Route(RESPONSE_PATH, self.one),
            Route(RESPONSE_PATH, self.delete, methods=["DELETE"]),
            Route(INPUT_ITEMS_PATH, self.input_items),
            *(Route(path, _refuse_endpoint, methods=["GET", "POST"]) for path in UNSERVED_PATHS),
        ]

    async def one(self, request: Request) -> Response:
        """Return one response. Raises NotFound, or Shed where the store cannot be read."""
        stored = await self._stored(request)
        if request.query_params.get("stream") == "true":
            message = "`stream` must be false: a stored response is returned whole."
            raise InvalidRequest(message, param="stream", code="unsupported_parameter")
        return ApiResponse(stored.response)

    async def delete(self, request: Request) -> Response:
        """Delete one response. Raises NotFound, or Shed where the store cannot be reached."""
        response_id = request.path_params["response_id"]
        if not await self._store.delete(self._tenant(request), response_id):
            raise _unknown(response_id)
        return ApiResponse(DeletedResponse(response_id))

    async def input_items(self, request: Request) -> Response:
        """Return a page of the items that a response answers. Raises NotFound, InvalidRequest or Shed."""
        query = request.query_params
        order, after = query.get("order", "desc"), query.get("after")
        if order not in ("asc", "desc"):
            raise InvalidRequest("`order` must be asc or desc.", param="order")
        limit = _limit(query.get("limit"))
        stored = await self._stored(request)
        items = [_listed(item) for item in (stored.input if order == "asc" else reversed(stored.input))]
        ids = [item["id"] for item in items]
        if after is not None and after not in ids:
            raise InvalidRequest("`after` must be the id of an item of this response.", param="after")
        begin = 0 if after is None else ids.index(after) + 1
        page = items[begin : begin + limit]
        first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
        return ApiResponse(ResponseItems(page, first, last, begin + limit < len(items)))

    async def _stored(self, request: Request) -> StoredResponse:
        response_id = request.path_params["response_id"]
        stored = await self._store.read(self._tenant(request), response_id)
        if stored is None:
            raise _unknown(response_id)
        return stored

    def _tenant(self, request: Request) -> str:
        """Return the tenant; raises InvalidApiKey."""
        host = request.client.host if request.client else None
        return self._policy().keys.authenticate(find_headers(request.scope, b"authorization"), host).tenant


async def _refuse_endpoint(request: Request) -> Response:
    """Answer an endpoint that is not served. Raises NotFound."""
    path = shown_path(request.scope["path"])
    raise NotFound(f"'{path}' is not served. Of the Responses API there are {_SERVED}.")


def _limit(given: str | None) -> int:
    if given is None:
        return _PAGE
    limit = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 0
    if not 1 <= limit <= _MAX_PAGE:
        raise InvalidRequest(f"`limit` must be between 1 and {_MAX_PAGE}.", param="limit")
    return limit


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an input item in the form of the API, which has a message's content in parts."""
    if item["type"] != "message" or not isinstance(item.get("content"), str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    part = {"type": kind, "text": item["content"]}
    content = [part if kind == "input_text" else {**part, "annotations": []}]
    return {"status": "completed", **item, "content": content}


def _unknown(response_id: str) -> NotFound:
    return NotFound(
        f"There is no response '{response_id[:100]}'. It may have expired, or the gateway kept none; the policy's "
        "`responses.store` and the request's `store` decide.",
        param="response_id",
    )
