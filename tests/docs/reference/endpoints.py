"""The page of the HTTP API: the public listener, the admin listener and the engine."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from engine.frontend.core_client.service import EngineService
from engine.frontend.http.adapters import AdapterAdmin
from engine.frontend.http.app import EngineApp
from engine.frontend.http.completions import Completions
from engine.frontend.http.health import EngineProbes
from engine.frontend.http.tokenization import Tokenization
from gateway.admin.api.gate import METRICS_PATH
from gateway.admin.routes import GuardedPath
from gateway.api.openapi.document import openapi_document
from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.docs.reference.markdown import code, one_line, page, section, table

_INTRODUCTION = """
The public API is described by `GET /openapi.json` on the admin listener, which this page is made from. Errors:
[error codes](error-codes.md). Fields of a request: [request fields](fields.md). [How clients use it](../clients.md).
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
    for route in asyncio.run(_admin_application()).routes:
        if isinstance(route, Route) and isinstance(route.endpoint, GuardedPath):
            for method, entry in route.endpoint._endpoints.items():
                role = "open" if entry.least_role is None else entry.least_role.name.lower()
                role = "viewer or metrics token" if entry.path == METRICS_PATH else role
                yield method, _template(entry.path), role, _sentence(entry.handler) or "An admin page."
        elif isinstance(route, Route):
            yield "GET", _template(route.path), "open", _sentence(route.endpoint)
        elif isinstance(route, Mount):
            yield "GET", f"{route.path}/{{}}", "open", "A static file of the admin page."


def _template(path: str) -> str:
    """Return a route's path with `{}` for each parameter."""
    return re.sub(r"\{[^}]*\}", "{}", path)


async def _admin_application() -> Starlette:
    """Return the admin application of a gateway that is constructed and never started."""
    with tempfile.TemporaryDirectory() as name:
        settings = {
            "process.runtime_dir": Path(name),
            "admin.oidc.issuer": "https://login.example.com",
            "admin.oidc.client_id": "penstock",
            "admin.oidc.redirect_url": "http://127.0.0.1:8081/admin/api/oidc/callback",
        }
        gateway = Gateway(config_of(settings), log_stream=io.BytesIO())
        (admin,) = [one.app for one in gateway.server._listeners if isinstance(one.app, Starlette)]
        return admin


def _sentence(endpoint: Any) -> str:
    """An endpoint's own sentence; which Python error it raises is no matter of HTTP."""
    text = _RAISES.sub("", one_line(endpoint.__doc__)).strip()
    return text if not text or text.endswith(".") else f"{text}."


def _engine() -> Iterator[tuple[str, str]]:
    completions = cast(Completions, _DocumentedCompletions())
    app = EngineApp(
        completions,
        EngineProbes.__new__(EngineProbes),
        Tokenization.__new__(Tokenization),
        AdapterAdmin(cast(EngineService, None), Path()),
    )
    for path, handler in app._completions.items():
        yield code(f"POST {path}"), one_line(_engine_doc(handler))
    for route in app._others.routes:
        assert isinstance(route, Route)
        if route.path not in app._completions:
            method = "POST" if "POST" in (route.methods or ()) else "GET"
            yield code(f"{method} {_template(route.path)}"), _sentence(route.endpoint)


class _DocumentedCompletions:
    """Stands in for the two POST handlers, whose sentences are the class's own."""

    chat = Completions.chat
    complete = Completions.complete


def _engine_doc(handler: Any) -> str | None:
    """A handler's own sentence, or that of the probe which it hands the request to."""
    if handler.__name__ != "<lambda>":
        return cast(str | None, handler.__doc__)
    return cast(str | None, getattr(EngineProbes, handler.__code__.co_names[-1]).__doc__)
