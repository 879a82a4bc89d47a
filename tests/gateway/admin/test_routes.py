"""Who may call what of the admin listener, endpoint by endpoint."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from gateway.access.identity import Role
from gateway.admin.routes import GuardedPath
from tests.gateway.stack import running

API = "/admin/api"
PUBLIC = {
    *(("GET", path) for path in ("/admin/login", f"{API}/session")),
    *(("POST", f"{API}/login{path}") for path in ("", "/token", "/links/redeem")),
}
FOR_ADMINS = {
    *(("GET", f"{API}/admins"), ("POST", f"{API}/admins"), ("DELETE", f"{API}/admins/{{name}}")),
    ("POST", f"{API}/login/links"),
}
READ_BY_EDITORS = {("GET", f"{API}/routing/labels/export")}
SENT_BY_VIEWERS = {
    *(("POST", f"{API}/policy/{name}") for name in ("check", "diff", "edit", "patch", "plan")),
    *(("POST", f"{API}/{name}") for name in ("admins/{name}", "explain", "logout", "tokens")),
    ("DELETE", f"{API}/tokens/{{id}}"),
}


async def test_every_endpoint_requests_the_role_that_its_method_has_unless_it_is_named_here(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        application = stack.gateway.server._listeners[1].app
        assert isinstance(application, Starlette)
        endpoints = [route.endpoint for route in application.routes if isinstance(route, Route)]
    guarded = [endpoint for endpoint in endpoints if isinstance(endpoint, GuardedPath)]
    found = {
        (method, endpoint.path): endpoint.least_role for path in guarded for method, endpoint in path._endpoints.items()
    }
    assert len(found) >= 60
    wanted: dict[tuple[str, str], Role | None] = dict.fromkeys(PUBLIC)
    wanted |= {key: Role.VIEWER if key[0] == "GET" else Role.EDITOR for key in found.keys() - PUBLIC}
    wanted |= dict.fromkeys(FOR_ADMINS, Role.ADMIN)
    wanted |= dict.fromkeys(READ_BY_EDITORS, Role.EDITOR) | dict.fromkeys(SENT_BY_VIEWERS, Role.VIEWER)
    assert found == wanted
