"""Upgrade offers: which are refused, and how the others are taken out of a request."""

from __future__ import annotations

from gateway.http.head import Headers

_OFFER_HEADERS = frozenset({b"upgrade", b"http2-settings"})


def is_websocket(headers: Headers) -> bool:
    """Return whether the client cannot go on without WebSocket; other offers (h2c) are optional by their RFC."""
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


def head_without_upgrade(method: bytes, target: bytes, headers: Headers) -> bytes:
    """Return the request head in bytes, without the offer of another protocol."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    for name, value in headers:
        if name in _OFFER_HEADERS:
            continue
        if name == b"connection":
            value = b", ".join(
                token
                for token in (raw.strip(b" \t") for raw in value.split(b","))
                if token and token.lower() not in _OFFER_HEADERS
            )
            if not value:
                continue
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
