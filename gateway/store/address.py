"""StoreAddress: the parts of the `store` setting.

embedded:PATH                                        one SQLite file
redis://[user:password@]host[:port][/db]             one Redis; rediss:// with TLS; redis+unix:///path for its socket
redis+sentinel://[user:password@]host:port,…/service[/db]
redis+cluster://[user:password@]host:port,…          both also as rediss+…
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

StoreKind = Literal["embedded", "single", "sentinel", "cluster"]

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_KINDS: Final[dict[str, StoreKind]] = {
    "redis": "single",
    "rediss": "single",
    "redis+unix": "single",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
_FORMS: Final = "embedded:PATH, redis://host:port/0, redis+sentinel://host:port,host:port/service or redis+cluster://…"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """The place of the store; `repr` and `shown` contain no secret."""

    kind: StoreKind
    path: Path | None = None
    """The file of an embedded store, or the socket of a Redis on this machine."""
    hosts: tuple[tuple[str, int], ...] = ()
    """The Sentinels, the nodes of a Cluster, or the one Redis."""
    service: str = ""
    """The name of the primary at the Sentinels."""
    db: int = 0
    is_tls: bool = False
    ca_file: Path | None = None
    """PEM certificates of the authorities to trust in place of the system's; with TLS only."""
    username: str | None = None
    password: str | None = None

    @property
    def shown(self) -> str:
        """The address for logs and people."""
        if self.kind == "embedded":
            return f"embedded:{self.path}"
        scheme = ("rediss" if self.is_tls else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        where = str(self.path) if self.path else ",".join(f"{_bracketed(host)}:{port}" for host, port in self.hosts)
        user = f"{self.username or ''}:***@" if self.password else ""
        return f"{scheme}://{user}{where}" + (f"/{self.service}" if self.service else "")

    def __repr__(self) -> str:
        return f"StoreAddress({self.shown})"


def parse_store(text: str, *, ca_file: Path | None = None) -> StoreAddress:
    """Parse the setting. Raises ValueError, whose message holds no part of a password."""
    address = _parsed(text)
    if ca_file is not None and not address.is_tls:
        raise ValueError("a file of authorities has no use without TLS; write rediss:// or leave store.ca_file out")
    return replace(address, ca_file=ca_file)


def _parsed(text: str) -> StoreAddress:
    scheme, separator, rest = text.partition(":")
    if scheme == "embedded" and separator:
        if not rest:
            raise ValueError("embedded: needs a path, such as embedded:/var/lib/penstock/store.sqlite3")
        return StoreAddress(kind="embedded", path=Path(rest).expanduser())
    kind = _KINDS.get(scheme)
    if kind is None or not rest.startswith("//"):
        raise ValueError(f"expected {_FORMS}")
    address = _address(scheme, kind, text)
    if not address.hosts and address.path is None:
        raise ValueError("a host is missing")
    if kind == "sentinel" and not address.service:
        raise ValueError("redis+sentinel:// needs the service's name as its path, such as /mymaster")
    if kind != "sentinel" and len(address.hosts) > 1 and kind != "cluster":
        raise ValueError("several hosts make sense with redis+sentinel:// or redis+cluster:// only")
    if kind == "cluster" and address.db:
        raise ValueError("a Cluster has no numbered databases")
    return address


def _address(scheme: str, kind: StoreKind, text: str) -> StoreAddress:
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ValueError("nothing may follow the path")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    path = [unquote(item) for item in parts.path.split("/") if item]
    is_socket = scheme == "redis+unix"
    service = path.pop(0) if kind == "sentinel" and path else ""
    return StoreAddress(
        kind=kind,
        path=Path(unquote(parts.path)) if is_socket and parts.path not in ("", "/") else None,
        hosts=() if is_socket else _hosts(hosts, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT),
        service=service,
        db=0 if is_socket else _db(path),
        is_tls=scheme.startswith("rediss"),
        username=unquote(username) or None,
        password=unquote(password) or None,
    )


def _hosts(netloc: str, default_port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for item in filter(None, netloc.split(",")):
        host, port = item, ""
        if item.startswith("["):
            host, _, port = item[1:].partition("]")
            port = port.removeprefix(":")
        elif ":" in item:
            host, _, port = item.rpartition(":")
        if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
            raise ValueError("expected host or host:port")
        found.append((host, int(port) if port else default_port))
    return tuple(found)


def _db(path: list[str]) -> int:
    if not path:
        return 0
    if len(path) > 1 or not (path[0].isascii() and path[0].isdigit()):
        raise ValueError("expected a database number as the path, such as /0")
    return int(path[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
