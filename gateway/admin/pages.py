"""Pages: the frames of the admin page. They contain no data: scripts fetch it from the API, which checks the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from gateway.admin.api.request import AdminEndpoint, AdminRequest
from gateway.admin.assets import Assets
from gateway.api.application import NO_STORE

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    **NO_STORE,
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page; its template and its script are called like its id."""

    id: str
    path: str
    title: str
    key: str
    """The key that opens the page after `g`."""
    has_window: bool = False
    """True if the page shows a time window that can be chosen."""
    has_below: bool = False
    """True if paths below it are the same page, such as one request's."""
    in_menu: bool = True
    """True if the page is for users who are logged in."""


PAGES: Final = (
    Page(id="overview", path="/admin/", title="Overview", key="o", has_window=True),
    Page(id="requests", path="/admin/requests", title="Requests", key="r", has_below=True),
    Page(id="policy", path="/admin/policy", title="Policy", key="p"),
    Page(id="cache", path="/admin/cache", title="Cache", key="c"),
    Page(id="deployments", path="/admin/deployments", title="Deployments", key="d", has_window=True),
    Page(id="load", path="/admin/load", title="Load", key="l", has_window=True),
    Page(id="tenants", path="/admin/tenants", title="Tenants", key="t"),
    Page(id="audit", path="/admin/audit", title="Audit", key="a"),
    Page(id="login", path="/admin/login", title="Sign in", key="i", in_menu=False),
)


class Pages:
    """Every page, from its template."""

    def __init__(self, assets: Assets) -> None:
        self.templates = Jinja2Templates(env=_environment(assets.base, assets.plotly))

    def endpoints(self) -> list[AdminEndpoint]:
        """Return the endpoints."""
        paths = [("/admin", PAGES[0]), *((page.path, page) for page in PAGES)]
        paths += [(f"{page.path}/{{below:path}}", page) for page in PAGES if page.has_below]
        return [
            AdminEndpoint(path=path, handler=self._handler(page), is_public=not page.in_menu) for path, page in paths
        ]

    def _handler(self, page: Page) -> Callable[[AdminRequest], Awaitable[Response]]:
        async def show(request: AdminRequest) -> Response:
            return self.templates.TemplateResponse(request, f"{page.id}.html", {"page": page}, headers=_HEADERS)

        return show


@cache
def _environment(static: str, plotly: str) -> Environment:
    """Return all templates, compiled: once for a process, and at its start, since no request should wait for that."""
    environment = Environment(
        loader=PackageLoader("gateway.admin", "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(pages=PAGES, static=static, plotly=plotly)
    for name in environment.list_templates():
        environment.get_template(name)
    return environment
