"""AdminRequest and AdminEndpoint: one request of the admin listener, and what a handler offers to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.identity import Identity, Role
from gateway.admin.api.fields import fill
from gateway.api.json_bodies import MAX_SUBMISSION_BYTES
from gateway.errors import InvalidRequest

S = TypeVar("S", bound=msgspec.Struct)
H = TypeVar("H", bound=Callable[..., Any])

MAX_DOCUMENT_SUBMISSION_BYTES: Final = 4 * 1024 * 1024
"""A policy of the largest size as a JSON string."""
_MAX_QUERY_CHARS: Final = 256
_MARK: Final = "_serves"


class AdminRequest(Request):
    """A request that has passed the gate. Every reading raises InvalidRequest that names the field or parameter."""

    who: Identity
    """The caller."""
    document: dict[str, Any]
    """The request's JSON body, for methods that have one."""

    def fill(self, kind: type[S]) -> S:
        """Return the document as a struct."""
        return fill(kind, self.document)

    def text(self, name: str) -> str | None:
        """Return a query parameter, None when it is not given or empty."""
        return self.query_params.get(name, "")[:_MAX_QUERY_CHARS] or None

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a query parameter that is a whole number between the bounds."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise InvalidRequest(f"{name}: expected a whole number from {least} to {most}.", param=name)
        return int(text)

    def choice(self, name: str, default: int, choices: tuple[int, ...]) -> int:
        """Return a query parameter that is one of a few numbers."""
        found = self.integer(name, default, least=0, most=1_000_000)
        if found not in choices:
            raise InvalidRequest(f"{name}: expected one of {', '.join(map(str, choices))}.", param=name)
        return found


class AdminEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path of the admin listener."""

    method: str = "GET"
    path: str
    """The path in Starlette's notation: `{name}` matches one segment."""
    handler: Callable[[AdminRequest], Awaitable[Response]]
    """The coroutine that answers; it may raise GatewayError."""
    role: Role | None = None
    """The least role; None: viewer for GET, else editor."""
    is_public: bool = False
    """True if no login is needed."""
    max_bytes: int = MAX_SUBMISSION_BYTES

    @property
    def least_role(self) -> Role | None:
        """Return the least role that the caller needs; None: no login is needed."""
        if self.is_public:
            return None
        return self.role or (Role.VIEWER if self.method == "GET" else Role.EDITOR)


def serves(
    path: str,
    method: str = "GET",
    *,
    role: Role | None = None,
    is_public: bool = False,
    max_bytes: int = MAX_SUBMISSION_BYTES,
) -> Callable[[H], H]:
    """Mark a method as the one that answers; the arguments are those of AdminEndpoint."""
    marks = {"path": path, "method": method, "role": role, "is_public": is_public, "max_bytes": max_bytes}

    def mark(function: H) -> H:
        setattr(function, _MARK, marks)
        return function

    return mark


def endpoints_of(*handlers: object) -> list[AdminEndpoint]:
    """Return an endpoint for each marked method."""
    return [
        AdminEndpoint(handler=getattr(each, name), **marks)
        for each in handlers
        for name, function in vars(type(each)).items()
        if (marks := getattr(function, _MARK, None)) is not None
    ]
