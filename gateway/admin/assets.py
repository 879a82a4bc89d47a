"""Assets: the pages' own scripts and styles, and the charting library as its package ships it.

Addresses hold a hash of what is behind them, so a browser may keep what it has for ever. Own files lose their comments
and their white space once, at the start; the sources stay readable, and nothing has to be built.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from rcssmin import cssmin
from rjsmin import jsmin

from gateway.api.routes import SmallResponse
from gateway.errors import Header, NotFound
from gateway.http.asgi import Scope, find_header

STATIC_PATH: Final = "/admin/static"
_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8", ".svg": b"image/svg+xml"}
_SHORTER: Final[Mapping[str, Callable[[str], str]]] = {".js": jsmin, ".css": cssmin}
_HASH_CHARS: Final = 16
_FOREVER: Final[tuple[Header, ...]] = (
    (b"cache-control", b"public, max-age=31536000, immutable"),
    (b"vary", b"accept-encoding"),
    (b"x-content-type-options", b"nosniff"),
)
_PLOTLY: Final = "plotly.min.js"


class Asset(msgspec.Struct, frozen=True):
    """One file, both ways."""

    kind: bytes
    plain: bytes
    zipped: bytes


class Assets:
    """`GET /admin/static/{hash}/{name}`."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        files = sorted(path for path in folder.iterdir() if path.suffix in _TYPES)
        self.own = {path.name: _asset(path.suffix, _own_bytes(path)) for path in files}
        """By name, as they are served."""
        digest = sha256(b"".join(name.encode() + b"\0" + asset.plain for name, asset in self.own.items()))
        self.base = f"{STATIC_PATH}/{digest.hexdigest()[:_HASH_CHARS]}"
        """Where the own files are."""
        self._plotly_at = _plotly_path()
        stamp = sha256(f"plotly {version('plotly')} {self._plotly_at.stat().st_size}".encode())
        self.plotly = f"{STATIC_PATH}/{stamp.hexdigest()[:_HASH_CHARS]}/{_PLOTLY}"
        """Where the charting library is."""
        self._zipping: asyncio.Task[Asset] | None = None

    @property
    def own_bytes(self) -> int:
        """Scripts and styles of ours, as they are served uncompressed."""
        return sum(len(asset.plain) for name, asset in self.own.items() if not name.endswith(".svg"))

    async def get(self, scope: Scope) -> SmallResponse:
        """The file; raises NotFound, also for one of another version."""
        path: str = scope["path"]
        if path == self.plotly:
            return _answer(scope, await self._library())
        base, _, name = path.rpartition("/")
        asset = self.own.get(name) if base == self.base else None
        if asset is None:
            raise NotFound("There is no such file in this version; load the page again.")
        return _answer(scope, asset)

    async def _library(self) -> Asset:
        """Read and compressed once, by whoever asks first, on a thread: it is large."""
        if self._zipping is None or (self._zipping.done() and self._zipping.exception() is not None):
            work = asyncio.to_thread(_asset_at, self._plotly_at)
            self._zipping = asyncio.get_running_loop().create_task(work, name="compress plotly")
        return await asyncio.shield(self._zipping)


def _own_bytes(path: Path) -> bytes:
    shorter = _SHORTER.get(path.suffix)
    return path.read_bytes() if shorter is None else shorter(path.read_text("utf-8")).encode()


def _asset_at(path: Path) -> Asset:
    return _asset(path.suffix, path.read_bytes())


def _asset(suffix: str, plain: bytes) -> Asset:
    return Asset(_TYPES[suffix], plain, gzip.compress(plain, 6, mtime=0))


def _answer(scope: Scope, asset: Asset) -> SmallResponse:
    kind = (b"content-type", asset.kind)
    if b"gzip" in (find_header(scope, b"accept-encoding") or b""):
        return SmallResponse(headers=(kind, *_FOREVER, (b"content-encoding", b"gzip")), body=asset.zipped)
    return SmallResponse(headers=(kind, *_FOREVER), body=asset.plain)


def _plotly_path() -> Path:
    found = find_spec("plotly")
    places = () if found is None else found.submodule_search_locations or ()
    for place in places:
        path = Path(place) / "package_data" / _PLOTLY
        if path.is_file():
            return path
    raise FileNotFoundError(f"{_PLOTLY} is not in the installed plotly package; install plotly again")
