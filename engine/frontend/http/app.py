"""The engine's ASGI application: routes, request ids, and the envelope for everything that goes wrong."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Literal

from engine.frontend.core_client.mailbox import RequestAbandoned
from engine.frontend.http.completions import Completions
from engine.frontend.http.health import EngineProbes
from engine.frontend.http.streaming import StreamCutError
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
    send_answer,
    send_error,
)
from engine.frontend.request.errors import ApiError, internal_error
from engine.frontend.request.headers import choose_request_id

logger = logging.getLogger(__name__)

Handler = Callable[[Headers, Receive, Send, dict[str, str]], Awaitable[None]]
_MODEL_PREFIX = "/v1/models/"
_LOAD = "/engine/load"


class EngineApp:
    """Pure ASGI; one instance serves all connections."""

    def __init__(self, completions: Completions, probes: EngineProbes) -> None:
        self._probes = probes
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", completions.chat),
            "/v1/completions": ("POST", completions.complete),
            "/v1/models": ("GET", lambda _h, _r, send, echo: probes.models(send, echo)),
            "/livez": ("GET", lambda _h, _r, send, echo: probes.livez(send, echo)),
            "/readyz": ("GET", lambda _h, _r, send, echo: probes.readyz(send, echo)),
            "/startupz": ("GET", lambda _h, _r, send, echo: probes.startupz(send, echo)),
            "/metrics": ("GET", lambda _h, _r, send, echo: probes.metrics(send, echo)),
            _LOAD: ("GET", lambda _h, receive, send, echo: probes.load(receive, send, echo)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, whatever becomes of it."""
        assert scope["type"] == "http", "lifespan and websockets are off"
        headers = Headers(scope)
        request_id = choose_request_id(headers, secrets.token_hex(16))
        answer = _Answer(send)
        echo = {"x-request-id": request_id}
        try:
            handler = self._route(scope["method"], scope["path"])
            await handler(headers, receive, answer, echo)
        except ApiError as error:
            await send_error(answer, error, echo)
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
            await answer.fail(internal_error(request_id), echo)
            _connection(scope).close_when_sent()

    def _route(self, method: str, path: str) -> Handler:
        allowed, handler = self._routes.get(path, ("", None))
        if handler is None and path.startswith(_MODEL_PREFIX):
            model_id = path[len(_MODEL_PREFIX) :]
            allowed, handler = "GET", lambda _h, _r, send, echo: self._probes.model(model_id, send, echo)
        if handler is None:
            message = f"There is no route {path[:128]!r}."
            raise ApiError(404, message, code="not_found", headers=_CLOSE)
        if method == "HEAD" and allowed == "GET":
            return self._load_head if path == _LOAD else handler  # the server leaves the bodies out
        if method != allowed:
            allowed = "GET, HEAD" if allowed == "GET" else allowed
            message = f"{method[:16]} is not allowed here; use {allowed}."
            raise ApiError(405, message, code="method_not_allowed", headers={"allow": allowed, **_CLOSE})
        return handler

    async def _load_head(self, headers: Headers, receive: Receive, send: Send, echo: dict[str, str]) -> None:
        """The head of the feed of loads, which itself has no end."""
        await send_answer(send, 200, b"", echo, EVENT_STREAM)


_CLOSE = {"connection": "close"}
"""A body nobody read may still be on its way, so the connection cannot serve another request."""


class _Answer:
    """`send`, remembering how far the response is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status: Literal["none", "plain", "stream", "complete"] = "none"

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = "stream" if (b"content-type", EVENT_STREAM) in message["headers"] else "plain"
        elif not message.get("more_body", False):
            self._status = "complete"
        await self._send(message)

    async def fail(self, error: ApiError, headers: dict[str, str]) -> None:
        """Say the error in the form that is still possible."""
        if self._status == "none":
            await send_error(self, error, headers)
        elif self._status == "stream":
            await self({"type": "http.response.body", "body": error.event()})


def _connection(scope: Scope) -> ClientConnection:
    """The way to end the connection; other servers than ours have none, and end it their own way."""
    connection = scope.get("extensions", {}).get(CONNECTION_EXTENSION)
    return connection if isinstance(connection, ClientConnection) else _NO_CONNECTION


class _NoConnection:
    def abort(self) -> None:
        """Nothing to abort."""

    def close_when_sent(self) -> None:
        """Nothing to close."""


_NO_CONNECTION = _NoConnection()
