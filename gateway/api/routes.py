"""Site: exact paths to endpoints, with the envelope for everything else. The shape of both listeners' applications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from gateway.chat.request import require_json
from gateway.chat.strict_json import JsonGuard
from gateway.errors import (
    GatewayError,
    Header,
    InternalError,
    MethodNotAllowed,
    NotFound,
    RequestTooLarge,
    error_body,
    error_headers,
)
from gateway.http.asgi import ASGIApp, BodyTooLarge, Receive, Scope, Send, find_header, read_body, respond
from gateway.limits.body_budget import NOBODY, BodyBudget, parsed_bytes
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds

E = TypeVar("E")

JSON: Final[Header] = (b"content-type", b"application/json")
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallResponse:
    """A whole response of a small endpoint."""

    status: int = 200
    headers: tuple[Header, ...] = (JSON, _NO_STORE)
    body: bytes = b""

    @classmethod
    def json(cls, value: Any, status: int = 200) -> SmallResponse:
        """Return an answer with `value` as JSON."""
        return cls(status=status, body=encode_json(value))


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


Endpoint = Callable[[Scope], Awaitable[SmallResponse]]
"""Answers a GET; may raise GatewayError."""


Submission = Callable[[Scope, Any], Awaitable[SmallResponse]]
"""Answers a POST of a small JSON document, given decoded; may raise GatewayError."""

MAX_SUBMISSION_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteMap:
    """What is where. Paths are compared whole, as the server decoded them; `below` takes what follows a prefix."""

    get: Mapping[str, Endpoint]
    below: Mapping[str, Endpoint] = field(default_factory=dict)
    post: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Applications that answer by themselves, errors and request id included."""
    submit: Mapping[str, Submission] = field(default_factory=dict)
    streams: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Applications that answer a GET by themselves and in their own time; may raise GatewayError before they begin."""

    def with_more(self, more: SiteMap) -> SiteMap:
        """Both maps in one; raises ValueError where they disagree about a path."""
        parts = {}
        for part in ("get", "below", "post", "submit", "streams"):
            ours, theirs = getattr(self, part), getattr(more, part)
            if twice := ours.keys() & theirs.keys():
                raise ValueError(f"{part}: {', '.join(sorted(twice))} is there twice")
            parts[part] = {**ours, **theirs}
        return SiteMap(**parts)


class Site:
    """The ASGI application of one listener."""

    def __init__(self, site_map: SiteMap, *, ids: RequestIds, log: LogWriter, bodies: BodyBudget | None = None) -> None:
        """`bodies` bounds what submissions hold in memory; None: nothing does."""
        self._bodies = bodies
        self._map = site_map
        self._ids = ids
        self._log = log
        self._guard = JsonGuard(())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP is ignored, as ASGI allows for lifespan."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        application = self._map.post.get(path)
        if application is not None and scope["method"] == "POST":
            await application(scope, receive, send)
            return
        request_id = self._ids.next()
        try:
            stream = self._map.streams.get(path)
            if stream is not None and scope["method"] == "GET":
                await stream(scope, receive, send)
                return
            answer = await self._answer(scope, receive, path)
        except GatewayError as error:
            answer = _refusal(error)
        except Exception as error:  # our own fault, whatever it is: the client gets an id, the log the cause
            self._log.failure("endpoint_failed", error, request_id=request_id, path=path)
            answer = _refusal(InternalError(request_id))
        await respond(
            send, answer.status, [*answer.headers, (b"x-request-id", request_id.encode("ascii"))], answer.body
        )

    async def _answer(self, scope: Scope, receive: Receive, path: str) -> SmallResponse:
        submission = self._map.submit.get(path)
        if submission is None or scope["method"] != "POST":
            return await self._get(scope, path)
        require_json(find_header(scope, b"content-type"), find_header(scope, b"content-encoding"))
        held = None if self._bodies is None else self._bodies.open(NOBODY)  # whose key it is, the submission finds out
        try:
            body = await read_body(receive, MAX_SUBMISSION_BYTES, room=held)
            if held is not None:
                await held.cover(parsed_bytes(body))
            return await submission(scope, self._guard.decode(body))
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        finally:
            if held is not None:
                held.release()

    async def _get(self, scope: Scope, path: str) -> SmallResponse:
        method: str = scope["method"]
        if path in self._map.post or path in self._map.submit:
            raise MethodNotAllowed(method, ["POST"])
        if path in self._map.streams:
            raise MethodNotAllowed(method, ["GET"])
        endpoint = self._map.get.get(path) or _find_below(self._map.below, path)
        if endpoint is None:
            raise NotFound(f"There is nothing at this path. {_where(path)}")
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(method, ["GET", "HEAD"])
        return await endpoint(scope)


def _where(path: str) -> str:
    if path.startswith("/admin/"):
        return "The admin API is under /admin/api/ of the listener that admin.listen names."
    return "The API is under /v1/."


def _find_below(places: Mapping[str, E], path: str) -> E | None:
    return next(
        (found for prefix, found in places.items() if path.startswith(prefix) and len(path) > len(prefix)), None
    )


def _refusal(error: GatewayError) -> SmallResponse:
    return SmallResponse(status=error.status, headers=tuple(error_headers(error)), body=error_body(error))
