"""Assets: the pages' own scripts and styles, and the charting library as its package ships it.

Addresses contain a hash of the contents, so browsers may cache them forever. Our own files lose their comments and
their white space once, at the start. The sources stay readable, and there is no build step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rcssmin import cssmin
from rjsmin import jsmin
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles

from gateway.http.asgi import Scope

STATIC_PATH: Final = "/admin/static"
_FOLDER: Final = Path(__file__).parent / "static"
_JAVASCRIPT: Final = "text/javascript; charset=utf-8"
_TYPES: Final = {".js": _JAVASCRIPT, ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_SHORTER: Final[Mapping[str, Callable[[str], str]]] = {".js": jsmin, ".css": cssmin}
_HASH_CHARS: Final = 16
_FOREVER: Final = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
_PLOTLY: Final = "plotly.min.js"
_GZIP: Final = Middleware(GZipMiddleware, minimum_size=500, compresslevel=6, thread_minimum_size=16 * 1024)
"""Compresses on a thread whatever takes longer than half a millisecond."""


class Assets:
    """Everything below `/admin/static`."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._files = MinifiedFiles(folder)
        self._plotly_at = _plotly_path()
        self.base = f"{STATIC_PATH}/{_digest(b''.join(self.own.values()))}"
        """URL path of our own files."""
        stamp = f"plotly {version('plotly')} {self._plotly_at.stat().st_size}"
        self.plotly = f"{STATIC_PATH}/{_digest(stamp.encode())}/{_PLOTLY}"
        """URL path of the charting library."""

    @property
    def own(self) -> Mapping[str, bytes]:
        """Own files by name, as they are served uncompressed."""
        return self._files.contents

    def router(self) -> Router:
        """Build the application that serves them, to be mounted at STATIC_PATH."""
        own, plotly = self.base.removeprefix(STATIC_PATH), self.plotly.removeprefix(STATIC_PATH)
        routes = [Mount(own, self._files), Route(plotly, self._library)]
        return Router(routes, redirect_slashes=False, middleware=[_GZIP])

    async def _library(self, request: Request) -> Response:
        return FileResponse(self._plotly_at, headers=_FOREVER, media_type=_JAVASCRIPT)


class MinifiedFiles(StaticFiles):
    """Serves a folder's scripts and styles without comments and white space."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder)
        files = sorted(path for path in folder.iterdir() if path.suffix in _TYPES)
        self.contents = {path.name: _minified(path) for path in files}

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return the whole file, even for a request of ranges."""
        path = Path(full_path)
        return Response(self.contents[path.name], status_code, _FOREVER, media_type=_TYPES[path.suffix])


def _minified(path: Path) -> bytes:
    shorter = _SHORTER.get(path.suffix)
    return path.read_bytes() if shorter is None else shorter(path.read_text("utf-8")).encode()


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_HASH_CHARS]


def _plotly_path() -> Path:
    found = find_spec("plotly")
    places = () if found is None else found.submodule_search_locations or ()
    for place in places:
        path = Path(place) / "package_data" / _PLOTLY
        if path.is_file():
            return path
    raise FileNotFoundError(f"{_PLOTLY} is not in the installed plotly package; install plotly again")
