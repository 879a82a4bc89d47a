"""Starlette applications of the gateway: a request id on every response, and the envelope around every error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.api.nearest import nearest_endpoint, shown_path
from gateway.errors import GatewayError, InternalError, MethodNotAllowed, NotFound, error_body, error_headers
from gateway.http.asgi import ASGIApp, ClientGone, Message, Receive, Scope, Send
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds

NO_STORE: Final = {"cache-control": "no-store"}

_REQUEST_ID: Final = "penstock.request_id"
"""Key of the scope with the request's id."""
_OPERATORS_PATHS: Final = ("/metrics", "/openapi.json")

ErrorEnvelope = Callable[[bytes, GatewayError, str], bytes | None]
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


class ApiResponse(Response):
    """A JSON document with `no-store`."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, {**NO_STORE, **(headers or {})})

    def render(self, content: Any) -> bytes:
        """Encode the document."""
        return encode_json(content)


def encode_json(value: Any) -> bytes:
    """Encode a value; what is no Unicode in it, such as in a file's name, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value


def error_response(error: GatewayError, body: bytes | None = None) -> Response:
    """Return the error in its envelope; `body` stands for the usual one."""
    response = Response(body or error_body(error), error.status)
    response.raw_headers.extend(error_headers(error))
    return response


def starlette_application(
    routes: Sequence[BaseRoute],
    *,
    ids: RequestIds,
    log: LogWriter,
    unknown: ASGIApp | None = None,
    handlers: Mapping[type[Exception], ErrorHandler] | None = None,
    envelope: ErrorEnvelope | None = None,
) -> Starlette:
    """Build a listener's application.

    Args:
        routes: The routes of the application.
        ids: Source of request ids for the responses.
        log: Log of every error without a handler.
        unknown: Application for paths without a route; raises NotFound if it is None.
        handlers: Handlers of further errors, by class.
        envelope: Body of an error at a path, with the request id; None stands for the usual one.
    """
    application = Starlette(
        routes=routes,
        middleware=[Middleware(RequestIdMiddleware, ids=ids, log=log)],
        exception_handlers={GatewayError: _answer_error, HTTPException: _answer_http_error, **(handlers or {})},
    )
    application.router.redirect_slashes = False
    application.state.envelope = envelope
    if unknown is not None:
        application.router.default = unknown
    return application


class RequestIdMiddleware:
    """Puts `x-request-id` on every response; an error without a handler becomes a 500 with that id and no more."""

    def __init__(self, app: ASGIApp, *, ids: RequestIds, log: LogWriter) -> None:
        self._app = app
        self._ids = ids
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP is ignored, as ASGI allows for lifespan."""
        if scope["type"] != "http":
            return
        request_id = self._ids.next()
        has_started = False
        scope[_REQUEST_ID] = request_id

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode("ascii"))]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientGone:
            return
        except Exception as error:  # our own fault, whatever it is
            self._log.failure("endpoint_failed", error, request_id=request_id, path=scope["path"])
            if has_started:
                raise
            await error_response(InternalError(request_id))(scope, receive, send_with_id)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError), "registered for that"
    return error_response(error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what Starlette itself raises: a path without a route, or a route without the method."""
    assert isinstance(error, HTTPException), "registered for that"
    found = MethodNotAllowed(request.method, _methods_at(request)) if error.status_code == 405 else None
    own = found or nothing_at(request.scope)
    envelope: ErrorEnvelope | None = request.app.state.envelope
    if envelope is None:
        return error_response(own)
    return error_response(own, envelope(request.scope["path"].encode(), own, request.scope[_REQUEST_ID]))


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes of the path: Starlette names those of the first one only."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.path_regex.match(request.scope["path"])]
    return sorted({method for methods in found for method in methods})


def nothing_at(scope: Scope) -> NotFound:
    """Return the 404 of a path that has no route: it names the path and the nearest endpoint of the application."""
    path: str = scope["path"]
    endpoints = [route.path for route in scope["app"].routes if isinstance(route, Route)]
    found = nearest_endpoint(path, endpoints)
    if found is not None:
        where = f"Did you mean {found}?"
    elif not any(endpoint.startswith("/v1/") for endpoint in endpoints):
        where = "The admin API is under /admin/api/; the API for clients is at the listener that `public.listen` names."
    elif path.startswith("/admin") or path in _OPERATORS_PATHS:
        where = f"For operators there is {path if path in _OPERATORS_PATHS else '/admin'} at the listener that "
        where += "`admin.listen` names."
    else:
        where = "The API is under /v1/."
    return NotFound(f"There is nothing at '{shown_path(path)}'. {where}")
