"""The engine's ASGI application: completions as plain ASGI, all else by Starlette, the envelope for what goes wrong."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.frontend.core_client.mailbox import RequestAbandoned
from engine.frontend.http.adapters import AdapterAdmin
from engine.frontend.http.completions import Completions
from engine.frontend.http.health import EngineProbes
from engine.frontend.http.nearest import likeliest_route, printable_path
from engine.frontend.http.streaming import StreamCutError
from engine.frontend.http.tokenization import Tokenization
from engine.frontend.request.asgi import (
    CONNECTION_EXTENSION,
    EVENT_STREAM,
    ClientConnection,
    Disconnected,
    Headers,
    Message,
    Receive,
    Scope,
    Send,
    send_error,
)
from engine.frontend.request.errors import ApiError, internal_error
from engine.frontend.request.headers import choose_request_id

logger = logging.getLogger(__name__)

Handler = Callable[[Headers, Receive, Send], Awaitable[None]]
_CLOSE: Final = {"connection": "close"}
"""Headers of a refusal after which the connection closes, because an unread body may still be on its way."""


class EngineApp:
    """One instance serves all connections."""

    def __init__(
        self, completions: Completions, probes: EngineProbes, tokenization: Tokenization, adapters: AdapterAdmin
    ) -> None:
        self._completions: dict[str, Handler] = {
            "/v1/chat/completions": completions.chat,
            "/v1/completions": completions.complete,
        }
        self._others = Starlette(
            routes=[
                *(Route(path, _never, methods=["POST"]) for path in self._completions),
                *tokenization.routes(),
                *adapters.routes(),
                *probes.routes(),
            ],
            exception_handlers={
                ApiError: _answer_error,
                HTTPException: _answer_http_error,
                Exception: _answer_failure,
            },
        )
        self._others.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, whatever its outcome."""
        assert scope["type"] == "http", "lifespan and websockets are off"
        headers = Headers(scope)
        request_id = choose_request_id(headers, secrets.token_hex(16))
        scope["state"]["request_id"] = request_id
        answer = _Answer(send, request_id)
        complete = self._completions.get(scope["path"]) if scope["method"] == "POST" else None
        try:
            if complete is not None:
                await complete(headers, receive, answer)
            else:
                await self._others(scope, receive, answer)
        except ApiError as error:
            await send_error(answer, error)
        except Disconnected:
            logger.info("client closed request %s", request_id)
        except RequestAbandoned:
            logger.info("client closed request %s", request_id)
            _connection(scope).abort()
        except StreamCutError as error:
            logger.warning("request %s was cut after its first byte: %s", request_id, error)
            _connection(scope).close_when_sent()
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        # The last resort: whatever it was, the client gets the envelope and we the traceback. A panic of the
        # tokenizer's Rust code is no Exception.
        except BaseException:
            logger.exception("request %s failed", request_id)
            await answer.fail(internal_error(request_id))
            _connection(scope).close_when_sent()


class _Answer:
    """Wrapper of `send` that adds the request id to the response and tracks its progress."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = (b"x-request-id", request_id.encode("latin-1"))
        self._status: Literal["none", "plain", "stream", "complete"] = "none"

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = "stream" if (b"content-type", EVENT_STREAM) in message["headers"] else "plain"
            message["headers"] = [*message["headers"], self._request_id]
        elif not message.get("more_body", False):
            self._status = "complete"
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        """Send the error in the form that is still possible."""
        if self._status == "none":
            await send_error(self, error)
        elif self._status == "stream":
            await self({"type": "http.response.body", "body": error.event()})


async def _never(request: Request) -> Response:
    """Answer other methods than those of the completions with 405."""
    raise AssertionError("completions are served before Starlette")


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), "registered for that"
    return Response(error.body(), error.status, error.headers, "application/json")


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Return a response for an internal error; Starlette raises it again, for `EngineApp` to log."""
    return await _answer_error(request, internal_error(request.scope["state"]["request_id"]))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what Starlette itself raises: a path without a route, or a route without the method."""
    assert isinstance(error, HTTPException), "registered for that"
    if error.status_code != 405:
        return await _answer_error(request, _no_route(request))
    allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    message = f"{request.method[:16]} is not allowed here; use {allow}."
    refusal = ApiError(405, message, code="method_not_allowed", headers={"allow": allow, **_CLOSE})
    return await _answer_error(request, refusal)


def _no_route(request: Request) -> ApiError:
    path = request.scope["path"]
    found = likeliest_route(path, [route.path for route in request.app.routes if isinstance(route, Route)])
    hint = f"Did you mean {found}?" if found is not None else "The API is under /v1/."
    return ApiError(404, f"There is no route '{printable_path(path)}'. {hint}", code="not_found", headers=_CLOSE)


def _connection(scope: Scope) -> ClientConnection:
    """Return the handle that ends the connection; under other servers than ours it does nothing."""
    connection = scope.get("extensions", {}).get(CONNECTION_EXTENSION)
    return connection if isinstance(connection, ClientConnection) else _NO_CONNECTION


class _NoConnection:
    def abort(self) -> None:
        """Do nothing: there is nothing to abort."""

    def close_when_sent(self) -> None:
        """Do nothing: there is nothing to close."""


_NO_CONNECTION = _NoConnection()
