"""AdminTable: which endpoint of the admin API answers a path and a method, and who may call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from gateway.access.identity import Identity, Role, identity_of
from gateway.api.routes import MAX_SUBMISSION_BYTES, SmallResponse
from gateway.errors import MethodNotAllowed
from gateway.http.asgi import Scope

MAX_DOCUMENT_SUBMISSION_BYTES: Final = 4 * 1024 * 1024
"""A policy of the largest size as a JSON string."""


class Call(msgspec.Struct, frozen=True):
    """One request of the admin API, authorised."""

    scope: Scope
    document: dict[str, Any]
    params: tuple[str, ...]
    """What stood for each `{}` of the path."""

    @property
    def who(self) -> Identity:
        """Who makes it."""
        return identity_of(self.scope)


Action = Callable[[Call], Awaitable[SmallResponse]]
"""May raise GatewayError."""


class AdminEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path; `{}` in the path takes one segment."""

    method: str
    path: str
    action: Action
    role: Role | None = None
    """None: viewer for GET, else editor."""
    is_public: bool = False
    """Needs nobody to be logged in."""
    max_bytes: int = MAX_SUBMISSION_BYTES

    @property
    def least_role(self) -> Role:
        """What the caller needs."""
        return self.role or (Role.VIEWER if self.method == "GET" else Role.EDITOR)


class AdminTable:
    """Looked up once a request, by exact path first."""

    def __init__(self, entries: Iterable[AdminEndpoint]) -> None:
        self._by_path: dict[str, dict[str, AdminEndpoint]] = {}
        for entry in entries:
            methods = self._by_path.setdefault(entry.path, {})
            assert entry.method not in methods, f"{entry.method} {entry.path} is there twice"
            methods[entry.method] = entry
        self._patterns = [path.split("/") for path in self._by_path if "{}" in path]

    def find(self, method: str, path: str) -> tuple[AdminEndpoint, tuple[str, ...]] | None:
        """The entry and its parameters, None when the path is not in the table. Raises MethodNotAllowed."""
        params: tuple[str, ...] = ()
        methods = self._by_path.get(path)
        if methods is None:
            matched = self._match(path.split("/"))
            if matched is None:
                return None
            pattern, params = matched
            methods = self._by_path[pattern]
        entry = methods.get("GET" if method == "HEAD" else method)
        if entry is None:
            raise MethodNotAllowed(method, sorted(methods))
        return entry, params

    def _match(self, segments: list[str]) -> tuple[str, tuple[str, ...]] | None:
        for pattern in self._patterns:
            if len(pattern) == len(segments) and all(
                (want == "{}" and is_) or want == is_ for want, is_ in zip(pattern, segments, strict=True)
            ):
                params = tuple(is_ for want, is_ in zip(pattern, segments, strict=True) if want == "{}")
                return "/".join(pattern), params
        return None
