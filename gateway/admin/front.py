"""AdminFront: the admin listener's application: a gate before everything but probes, then the table or the site."""

from __future__ import annotations

from typing import Any, Final

from gateway.access.audit_log import AuditBroken
from gateway.access.identity import ANYBODY, Role, put_identity
from gateway.admin.api.errors import AuditUnreadable, NotLoggedIn, StoreLost
from gateway.admin.api.gate import AdminGate
from gateway.admin.api.table import AdminEndpoint, AdminTable, Call
from gateway.admin.site import METRICS_PATH
from gateway.api.health import PROBE_PATHS
from gateway.api.routes import SmallResponse
from gateway.chat.request import require_json
from gateway.chat.strict_json import JsonGuard, is_long
from gateway.errors import GatewayError, InternalError, RequestTooLarge, error_body, error_headers
from gateway.http.asgi import ASGIApp, BodyTooLarge, Receive, Scope, Send, find_header, read_body, respond
from gateway.limits.body_budget import OPERATORS, BodyBudget, BodyReservation, parsed_bytes
from gateway.store.base import StoreUnavailable
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds
from gateway.util.workers import Workers

ROOT: Final = "/admin"
API: Final = "/admin/api/"
LOGIN_PAGE: Final = "/admin/login"
_PUBLIC_PAGES: Final = (LOGIN_PAGE, "/admin/static/")


class AdminFront:
    """What is not below `/admin` is the site's; a GET of it, probes apart, passes the gate, too."""

    def __init__(
        self,
        site: ASGIApp,
        table: AdminTable,
        gate: AdminGate,
        *,
        ids: RequestIds,
        log: LogWriter,
        workers: Workers,
        bodies: BodyBudget,
    ) -> None:
        """`bodies` bounds what requests hold in memory, logged in or not."""
        self._bodies = bodies
        self._site = site
        self._table = table
        self._gate = gate
        self._ids = ids
        self._log = log
        self._workers = workers
        self._guard = JsonGuard(())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path: str = scope.get("path", "")
        is_below = path == ROOT or path.startswith(f"{ROOT}/")
        if scope["type"] != "http" or (not is_below and _is_open(scope["method"], path)):
            await self._site(scope, receive, send)
            return
        request_id = self._ids.next()
        try:
            if not is_below:
                await self._gate.admit_reader(scope, is_scrape=path == METRICS_PATH)
            answer = await self._answer(scope, receive, path) if is_below else None
        except NotLoggedIn as error:
            answer = _to_login(error, scope, path)
        except GatewayError as error:
            answer = _refusal(error)
        except StoreUnavailable:  # its observer was told
            answer = _refusal(StoreLost())
        except AuditBroken as error:
            answer = _refusal(AuditUnreadable(str(error)))
        except Exception as error:  # our own fault, whatever it is: the caller gets an id, the log the cause
            self._log.failure("endpoint_failed", error, request_id=request_id, path=path)
            answer = _refusal(InternalError(request_id))
        if answer is None:
            await self._site(scope, receive, send)
            return
        headers = [*answer.headers, (b"x-request-id", request_id.encode("ascii"))]
        await respond(send, answer.status, headers, answer.body)

    async def _answer(self, scope: Scope, receive: Receive, path: str) -> SmallResponse | None:
        """None: the site answers."""
        self._gate.check_page(scope)
        method: str = scope["method"]
        found = self._table.find(method, path)
        entry = None if found is None else found[0]
        if (entry is not None and entry.is_public) or path.startswith(_PUBLIC_PAGES):
            put_identity(scope, await self._gate.known(scope) or ANYBODY)
        else:
            least = entry.least_role if entry else Role.VIEWER if method in ("GET", "HEAD") else Role.EDITOR
            put_identity(scope, self._gate.authorize(scope, await self._gate.identify(scope), least))
        if found is None:
            return None
        if method in ("GET", "HEAD"):
            return await found[0].action(Call(scope, {}, found[1]))
        held = self._bodies.open(OPERATORS)
        try:
            document = await self._document(scope, receive, found[0], held)
            return await found[0].action(Call(scope, document, found[1]))
        finally:
            held.release()

    async def _document(
        self, scope: Scope, receive: Receive, entry: AdminEndpoint, held: BodyReservation
    ) -> dict[str, Any]:
        try:
            body = await read_body(receive, entry.max_bytes, room=held)
            await held.cover(parsed_bytes(body))
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        if not body and entry.method == "DELETE":
            return {}
        require_json(find_header(scope, b"content-type"), find_header(scope, b"content-encoding"))
        if is_long(body):
            return await self._workers.run(self._guard.decode, body)
        return self._guard.decode(body)


def _is_open(method: str, path: str) -> bool:
    """Probes say nothing but whether requests are served; methods other than GET get a 405 outside `/admin`."""
    return path in PROBE_PATHS or method not in ("GET", "HEAD")


def _to_login(error: NotLoggedIn, scope: Scope, path: str) -> SmallResponse:
    """A browser that asks for a page is sent to log in; who sends a token, calls the API or changes things is told."""
    asks_for_page = scope["method"] in ("GET", "HEAD") and path.startswith(ROOT) and not path.startswith(API)
    if not asks_for_page or find_header(scope, b"authorization") is not None:
        return _refusal(error)
    return SmallResponse(status=303, headers=((b"location", LOGIN_PAGE.encode()), (b"cache-control", b"no-store")))


def _refusal(error: GatewayError) -> SmallResponse:
    return SmallResponse(status=error.status, headers=tuple(error_headers(error)), body=error_body(error))
