"""The admin listener's Starlette application: all but probes stands behind the gate, whatever its path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import Final
from urllib.parse import quote

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from gateway.access.audit_log import AuditBroken
from gateway.access.identity import Role
from gateway.admin.api.errors import AuditUnreadable, NotLoggedIn, StoreLost
from gateway.admin.api.gate import METRICS_PATH, READING, AdminGate, is_below_admin
from gateway.admin.api.request import AdminEndpoint, AdminRequest, serves
from gateway.admin.api.return_path import login_path
from gateway.api.application import NO_STORE, ApiResponse, error_response, nothing_at, starlette_application
from gateway.api.json_bodies import JsonBodies
from gateway.api.openapi.document import openapi_document
from gateway.errors import MethodNotAllowed
from gateway.http.asgi import ASGIApp, Receive, Scope, Send
from gateway.limits.body_budget import OPERATORS
from gateway.store.base import StoreUnavailable
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import RequestIds

API: Final = "/admin/api/"


def admin_application(
    endpoints: Iterable[AdminEndpoint],
    others: Sequence[BaseRoute],
    gate: AdminGate,
    bodies: JsonBodies,
    *,
    ids: RequestIds,
    log: LogWriter,
) -> Starlette:
    """Build the application from endpoints that the gate guards, and from other routes that guard themselves."""
    by_path: dict[str, list[AdminEndpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    return starlette_application(
        [*(Route(path, GuardedPath(found, gate, bodies)) for path, found in by_path.items()), *others],
        ids=ids,
        log=log,
        unknown=UnknownPath(gate),
        handlers={NotLoggedIn: _redirect_to_login, StoreUnavailable: _warn_store_lost, AuditBroken: _warn_audit_broken},
    )


class GuardedPath:
    """A path whose callers are admitted, and their documents read, before its endpoint for the method answers."""

    def __init__(self, endpoints: Iterable[AdminEndpoint], gate: AdminGate, bodies: JsonBodies) -> None:
        self._endpoints = {endpoint.method: endpoint for endpoint in endpoints}
        self._gate = gate
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = AdminRequest(scope, receive, send)
        endpoint = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        least = _least_role(request.method) if endpoint is None else endpoint.least_role
        request.who = await self._gate.admit(request, least)
        if endpoint is None:
            heads = ["HEAD"] if "GET" in self._endpoints else []
            raise MethodNotAllowed(request.method, sorted([*self._endpoints, *heads]))
        response = await self._answer(endpoint, request)
        await response(scope, receive, send)

    async def _answer(self, endpoint: AdminEndpoint, request: AdminRequest) -> Response:
        if endpoint.method == "GET":
            return await endpoint.handler(request)
        async with self._bodies.read(request, OPERATORS, endpoint.max_bytes) as request.document:
            return await endpoint.handler(request)


class UnknownPath:
    """Answers 404 for paths without a route, to callers who may see which routes exist."""

    def __init__(self, gate: AdminGate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise NotFound, or what the gate raises."""
        if is_below_admin(scope["path"]) or scope["method"] in READING:
            await self._gate.admit(HTTPConnection(scope), _least_role(scope["method"]))
        raise nothing_at(scope)


def _least_role(method: str) -> Role:
    """Return the access that a caller needs to see that a path or a method is not served."""
    return Role.VIEWER if method in READING else Role.EDITOR


class OwnPagesOnly:
    """Middleware for paths that need no login: refuses pages of other sites."""

    def __init__(self, app: ASGIApp, gate: AdminGate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises ForeignHost or CsrfFailed."""
        self._gate.check_page(HTTPConnection(scope))
        await self._app(scope, receive, send)


class Operations:
    """Sources for operators outside `/admin`: metrics, and the public API's description."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        needs_key: Callable[[], bool],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Describe the API; `refresh` brings metrics of other processes up to date before they are rendered."""
        self._refresh = refresh
        self._metrics = metrics
        self._needs_key = needs_key
        self._documents = _described_api()

    @serves(METRICS_PATH)
    async def metrics(self, request: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        if self._refresh is not None:
            await self._refresh()
        return Response(self._metrics.instruments.render(), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    @serves("/openapi.json")
    async def openapi(self, request: Request) -> Response:
        """Describe the public API as OpenAPI 3.1, under the policy in force."""
        return self._documents[self._needs_key()]


async def _redirect_to_login(request: Request, error: Exception) -> Response:
    """Redirect a browser that requests a page to the login; refuse callers with a token, API calls and changes."""
    assert isinstance(error, NotLoggedIn), "registered for that"
    path = request.scope["path"]
    is_for_page = request.method in ("GET", "HEAD") and is_below_admin(path) and not path.startswith(API)
    if not is_for_page or "authorization" in request.headers:
        return error_response(error)
    return RedirectResponse(login_path(quote(path), request.scope["query_string"].decode("latin-1")), 303, NO_STORE)


async def _warn_store_lost(request: Request, error: Exception) -> Response:
    return error_response(StoreLost())  # the store's observer has the cause


async def _warn_audit_broken(request: Request, error: Exception) -> Response:
    return error_response(AuditUnreadable(str(error)))


@cache
def _described_api() -> dict[bool, ApiResponse]:
    """Return the public API's description by whether it needs a key, made once for a process."""
    document = openapi_document()
    return {True: ApiResponse(document), False: ApiResponse({**document, "security": []})}
