"""Proxy: a forward proxy between the gateway and a deployment, from the policy or from the environment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import unquote, urlsplit

from gateway.upstreams.http1.target import Target

_DEFAULT_PORT: Final = 80
_VARIABLES: Final = {"https": ("https_proxy", "HTTPS_PROXY"), "http": ("http_proxy", "HTTP_PROXY")}
_EXCEPTIONS: Final = ("no_proxy", "NO_PROXY")


class ProxyError(ValueError):
    """Error for an unusable proxy URL; its text never contains the URL, which may hold a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Address of an HTTP proxy. Connections to https targets are tunnelled (CONNECT), others use the absolute form."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)
    """Value of the `proxy-authorization` header; a secret."""

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Parse `http://[user:password@]host[:port]`; user and password may be percent-encoded.

        Raises:
            ProxyError: The URL has another form.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ProxyError("the proxy's URL has no valid host and port") from None
        if parts.scheme != "http":
            raise ProxyError("expected a proxy's URL with http://; proxies by TLS or SOCKS are not served")
        if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ProxyError("expected http://host:port, with user and password if the proxy needs them")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        credential = base64.b64encode(f"{user}:{password}".encode()) if user or password else None
        authorization = None if credential is None else b"Basic " + credential
        return cls(host=host, port=port or _DEFAULT_PORT, authorization=authorization)

    def connect_head(self, target: Target) -> bytes:
        """Return the request that opens a tunnel to the target."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        authority = f"{host}:{target.port}".encode("ascii")
        return b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (authority, authority, self.header_line)

    @property
    def header_line(self) -> bytes:
        """Return the line of the `proxy-authorization` header; empty without credentials."""
        return b"" if self.authorization is None else b"proxy-authorization: %b\r\n" % self.authorization

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def environment_proxy(target: Target, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that `HTTPS_PROXY` or `HTTP_PROXY` names for a target, None without one.

    Names in lower case win. Sockets, this machine, and what `NO_PROXY` lists are reached directly.

    Raises:
        ProxyError: The variable has no usable URL.
    """
    names = _VARIABLES.get(target.scheme, ())
    found = next(((name, url) for name in names if (url := environment.get(name, "").strip())), None)
    if found is None or _is_this_machine(target.host):
        return None
    exceptions = next((text for name in _EXCEPTIONS if (text := environment.get(name, ""))), "")
    if any(_excepts(entry.strip().lower(), target) for entry in exceptions.split(",")):
        return None
    name, url = found
    try:
        return Proxy.parse(url)
    except ProxyError as error:
        raise ProxyError(f"the environment variable {name}: {error}") from None


def _excepts(entry: str, target: Target) -> bool:
    """Return whether an entry of `NO_PROXY` covers a target: `*`, a name with its subdomains, an address, a network."""
    if not entry:
        return False
    if entry == "*":
        return True
    host = target.host.lower()
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        pass  # one of both is a name
    name, separator, port = entry.rpartition(":")
    if separator and port.isdigit():
        if int(port) != target.port:
            return False
        entry = name
    entry = entry.removeprefix("*").lstrip(".").strip("[]")
    return host == entry or host.endswith(f".{entry}")


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
