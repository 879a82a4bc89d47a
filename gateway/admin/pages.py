"""Pages: the frames of the admin page. They hold no data: scripts fetch that from the API, which knows who asks."""

from __future__ import annotations

from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.admin.assets import Assets
from gateway.api.routes import Endpoint, SmallResponse
from gateway.errors import Header
from gateway.http.asgi import Scope

ADMIN_PATH: Final = "/admin"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page; its template and its script are called like its id."""

    id: str
    path: str
    title: str
    key: str
    """Pressed after `g` it leads here."""
    has_window: bool = False
    """Whether it shows a stretch of time that can be chosen."""
    has_below: bool = False
    """Whether paths below it are the same page, such as one request's."""
    in_menu: bool = True


PAGES: Final = (
    Page(id="overview", path="/admin/", title="Overview", key="o", has_window=True),
    Page(id="requests", path="/admin/requests", title="Requests", key="r", has_below=True),
    Page(id="policy", path="/admin/policy", title="Policy", key="p"),
    Page(id="cache", path="/admin/cache", title="Cache lab", key="c"),
    Page(id="deployments", path="/admin/deployments", title="Deployments", key="d", has_window=True),
    Page(id="load", path="/admin/load", title="Load", key="l", has_window=True),
    Page(id="tenants", path="/admin/tenants", title="Tenants", key="t"),
    Page(id="audit", path="/admin/audit", title="Audit", key="a"),
    Page(id="login", path="/admin/login", title="Log in", key="i", in_menu=False),
)


class Pages:
    """Every page, rendered once: nothing in them depends on who asks."""

    def __init__(self, assets: Assets) -> None:
        environment = Environment(
            loader=PackageLoader("gateway.admin", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._answers = {
            page.id: SmallResponse(
                headers=_HEADERS,
                body=environment.get_template(f"{page.id}.html")
                .render(page=page, pages=PAGES, static=assets.base, plotly=assets.plotly)
                .encode(),
            )
            for page in PAGES
        }

    def get(self) -> dict[str, Endpoint]:
        """Endpoints by exact path."""
        found = {page.path: self._endpoint(page) for page in PAGES}
        return {ADMIN_PATH: found["/admin/"], **found}

    def below(self) -> dict[str, Endpoint]:
        """Endpoints by prefix."""
        return {f"{page.path}/": self._endpoint(page) for page in PAGES if page.has_below}

    def _endpoint(self, page: Page) -> Endpoint:
        answer = self._answers[page.id]

        async def endpoint(scope: Scope) -> SmallResponse:
            return answer

        return endpoint
