"""Offers of another protocol: WebSocket is refused, any other is taken out of the request, which is then plain HTTP."""

from __future__ import annotations

HeaderList = list[tuple[bytes, bytes]]

_OFFER_HEADERS = frozenset({b"upgrade", b"http2-settings"})


def is_websocket(headers: HeaderList) -> bool:
    """Return whether the client cannot go on without WebSocket; other offers (h2c) are optional by their RFC."""
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: HeaderList) -> bytes:
    """Return the request's head, in bytes, without the offer."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode("ascii"))]
    for name, value in headers:
        if name in _OFFER_HEADERS:
            continue
        if name == b"connection":
            tokens = [token.strip(b" \t") for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token and token.lower() not in _OFFER_HEADERS)
            if not value:
                continue
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
