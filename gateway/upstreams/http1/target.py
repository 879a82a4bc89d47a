"""Target: the address of an upstream, parsed once from the URL in the policy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

Scheme = Literal["http", "https", "unix", "builtin"]

_SUFFIX = ".sock"
_BUILTIN = "builtin:"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))


class TargetError(ValueError):
    """Error for a URL that names no upstream; the message gives the expected form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Address of one upstream: TCP, TLS or a Unix socket, with an optional path in front of every request's."""

    scheme: Scheme
    host: str
    """Name or address; `localhost` for a Unix socket, and the application's name for `builtin:`."""
    port: int = 0
    """Port; 0 for a Unix socket."""
    socket_path: str | None = None
    base_path: str = ""
    """Path in front of every request's: empty, or `/something` without a final slash."""
    tls_name: str | None = None
    """Name that the server's certificate must have; None means `host`."""

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse `http://host:port/base`, `https://host`, `unix:/path.sock`, `unix:/path.sock:/base` or `builtin:name`.

        A socket's path is taken literally, without percent-encoding.

        Raises:
            TargetError: The URL has another form.
        """
        if url.startswith("unix:"):
            return cls._parse_unix(url)
        if url.startswith(_BUILTIN):
            return cls(scheme="builtin", host=url.removeprefix(_BUILTIN))
        if not _is_printable(url):
            raise TargetError(f"{url!r}: expected printable ASCII without spaces")
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS:
            raise TargetError(f"{url!r}: expected http://host:port, https://host or unix:/path.sock")
        return cls._parse_tcp(url, parts)

    @classmethod
    def _parse_unix(cls, url: str) -> Target:
        path, base = _split_unix(url.removeprefix("unix:"))
        if path.startswith("//"):
            path = "/" + path.lstrip("/")
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise TargetError(f"{url!r}: expected an absolute path, as in unix:/run/penstock/small.sock")
        if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
            raise TargetError(f"{url!r}: a Unix socket's path may have {_MAX_SOCKET_PATH_BYTES} bytes, this has more")
        if not _is_printable(base):
            raise TargetError(f"{url!r}: the path in front of requests must be printable ASCII without spaces")
        return cls(scheme="unix", host="localhost", socket_path=path, base_path=_base_path(url, base))

    @classmethod
    def _parse_tcp(cls, url: str, parts: SplitResult) -> Target:
        if parts.username is not None or parts.password is not None:
            raise TargetError("an upstream's URL may not carry a user or password; use an API key setting")
        if parts.query or parts.fragment:
            raise TargetError(f"{url!r}: an upstream's URL has no query and no fragment")
        try:
            port = parts.port
        except ValueError as error:
            raise TargetError(f"{url!r}: {error}") from error
        if not parts.hostname or port == 0:
            raise TargetError(f"{url!r}: expected a host and, if any, a port from 1 to 65535")
        scheme: Scheme = "https" if parts.scheme == "https" else "http"
        return cls(
            scheme=scheme,
            host=parts.hostname,
            port=port or _DEFAULT_PORTS[scheme],
            base_path=_base_path(url, parts.path),
        )

    @property
    def is_tls(self) -> bool:
        """True if the connection is encrypted and the server's name is verified."""
        return self.scheme == "https"

    @property
    def is_builtin(self) -> bool:
        """True if the server is an application in this process."""
        return self.scheme == "builtin"

    @property
    def authority(self) -> str:
        """Value of the `host` header."""
        if self.socket_path is not None or self.is_builtin:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.socket_path is not None:
            return f"unix:{self.socket_path}" + (f":{self.base_path}" if self.base_path else "")
        if self.is_builtin:
            return f"{_BUILTIN}{self.host}"
        return f"{self.scheme}://{self.authority}{self.base_path}"


def _split_unix(text: str) -> tuple[str, str]:
    """Return a socket's path and the path in front of every request's; folder names may contain colons."""
    name, separator, base = text.rpartition(f"{_SUFFIX}:")
    if separator:
        return name + _SUFFIX, base
    path, separator, base = text.rpartition(":/")
    if separator and not base.endswith(_SUFFIX):
        return path, f"/{base}"
    return text, ""


def _is_printable(text: str) -> bool:
    return text.isascii() and all(" " < character < "\x7f" for character in text)


def _base_path(url: str, path: str) -> str:
    path = path.rstrip("/")
    if path and not path.startswith("/"):
        raise TargetError(f"{url!r}: the path in front of requests must start with a slash")
    return path
