"""The page of the HTTP API: the public listener, the admin listener and the engine."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.frontend.http.app import EngineApp
from engine.frontend.http.completions import Completions
from engine.frontend.http.health import EngineProbes
from gateway.admin.front import _PUBLIC_PAGES, AdminFront
from gateway.admin.site import METRICS_PATH
from gateway.api.health import PROBE_PATHS
from gateway.api.openapi import openapi_document
from gateway.api.routes import Site, SiteMap
from gateway.app.app import Gateway
from gateway.config import GatewayConfig
from tests.docs.reference.markdown import code, one_line, page, section, table

_INTRODUCTION = """
The public API is described by `GET /openapi.json` on the admin listener, which this page is made from. Errors:
[error codes](error-codes.md). [How clients use it](../clients.md).
"""
_ADMIN = """
Roles: viewer, editor, admin; `open` needs nobody to be logged in. A path's `{}` is one segment. Changes take a session
with its CSRF token, an API token, or the token in `runtime_dir/admin.token`. [The admin listener](../admin.md).
"""
_RAISES = re.compile(r"(?:;|\.|^)\s*[Rr]aises\b[^.;]*")


def endpoints_page() -> str:
    """Return the page."""
    document = openapi_document()
    return page(
        "HTTP API",
        _INTRODUCTION,
        section("Public listener", table(("endpoint", "does", "statuses"), _public(document))),
        section("Request headers", table(("header", "meaning"), _request_headers(document)), level=3),
        section("Response headers", table(("header", "meaning", "on"), _response_headers(document)), level=3),
        section("Admin listener", _ADMIN.strip(), table(("endpoint", "role", "does"), _admin_rows())),
        section("Engine", table(("endpoint", "does"), _engine())),
    )


def _operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield method.upper(), path, operation


def _public(document: Any) -> Iterator[tuple[str, str, str]]:
    for method, path, operation in _operations(document):
        yield code(f"{method} {path}"), operation["summary"], ", ".join(operation["responses"])


def _request_headers(document: Any) -> Iterator[tuple[str, str]]:
    for _, _, operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "header":
                yield code(parameter["name"]), parameter["description"]


def _response_headers(document: Any) -> list[tuple[str, str, str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for _, _, operation in _operations(document):
        for status, response in operation["responses"].items():
            for name, header in response["headers"].items():
                found.setdefault((name, header["description"]), set()).add(status)
    every = set().union(*found.values())
    words = {frozenset(every): "all", frozenset(every - {"200"}): "errors"}
    return [
        (code(name), text, words.get(frozenset(statuses)) or ", ".join(sorted(statuses)))
        for (name, text), statuses in sorted(found.items())
    ]


def _admin_rows() -> list[tuple[str, str, str]]:
    """Method and path, the least role and a sentence, by path."""
    entries = sorted(set(_admin()), key=lambda entry: (entry[1], entry[0]))
    return [(code(f"{method} {path}"), role, text) for method, path, role, text in entries]


def _admin() -> Iterator[tuple[str, str, str, str]]:
    front = asyncio.run(_admin_front())
    assert isinstance(front._site, Site)
    for path, methods in front._table._by_path.items():
        for method, entry in methods.items():
            role = "open" if entry.is_public else entry.least_role.name.lower()
            yield method, path, role, _sentence(entry.action)
    for method, path, endpoint in _site_endpoints(front._site._map):
        is_open = path in PROBE_PATHS or path.startswith(_PUBLIC_PAGES)
        role = "open" if is_open else "viewer" if method == "GET" else "editor"
        role = "viewer or metrics token" if path == METRICS_PATH else role
        yield method, path, role, _sentence(endpoint) or "An admin page."


def _site_endpoints(site_map: SiteMap) -> Iterator[tuple[str, str, Any]]:
    for path, endpoint in site_map.get.items():
        yield "GET", path, endpoint
    for path, endpoint in site_map.below.items():
        yield "GET", path + "{}", endpoint
    for path, stream in site_map.streams.items():
        yield "GET", path, type(stream)
    for path, submission in site_map.submit.items():
        yield "POST", path, submission


async def _admin_front() -> AdminFront:
    """The admin application of a gateway that is constructed and never started."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = GatewayConfig(
            runtime_dir=folder,
            oidc_issuer="https://login.example.com",
            oidc_client_id="penstock",
            oidc_redirect_url="http://127.0.0.1:8081/admin/api/oidc/callback",
        )
        gateway = Gateway(config, log_stream=io.BytesIO(), environment={})
        fronts = [listener.app for listener in gateway.server._listeners if isinstance(listener.app, AdminFront)]
        return fronts[0]


def _sentence(endpoint: Any) -> str:
    """An endpoint's own sentence; which Python error it raises is no matter of HTTP."""
    text = _RAISES.sub("", one_line(endpoint.__doc__)).strip()
    return text if not text or text.endswith(".") else f"{text}."


def _engine() -> Iterator[tuple[str, str]]:
    app = EngineApp(cast(Completions, _DocumentedCompletions()), cast(EngineProbes, SimpleNamespace()))
    for path, (method, handler) in app._routes.items():
        yield code(f"{method} {path}"), one_line(_engine_doc(handler))
    yield code("GET /v1/models/{}"), one_line(EngineProbes.model.__doc__)


class _DocumentedCompletions:
    """Stands in for the two POST handlers, whose sentences are the class's own."""

    chat = Completions.chat
    complete = Completions.complete


def _engine_doc(handler: Any) -> str | None:
    """A handler's own sentence, or that of the probe which it hands the request to."""
    if handler.__name__ != "<lambda>":
        return cast(str | None, handler.__doc__)
    return cast(str | None, getattr(EngineProbes, handler.__code__.co_names[-1]).__doc__)
