"""Other protocols: offers of an upgrade, and clients that speak HTTP/2 without one."""

from __future__ import annotations

from typing import Final

from gateway.http.head import Headers

HTTP2_PREFACE: Final = b"PRI * HTTP/2"
"""Beginning of a connection whose client speaks HTTP/2 without an offer ("prior knowledge", RFC 9113, section 3.3)."""
_EXPLANATION: Final = b"HTTP/2 is not served on this port, use HTTP/1.1"
_SETTINGS: Final = b"\x00\x00\x00\x04\x00" + bytes(4)
_HTTP_1_1_REQUIRED: Final = 0xD
HTTP2_GOAWAY: Final = b"".join(
    (
        _SETTINGS,
        (8 + len(_EXPLANATION)).to_bytes(3, "big"),
        b"\x07\x00" + bytes(4),
        bytes(4),
        _HTTP_1_1_REQUIRED.to_bytes(4, "big"),
        _EXPLANATION,
    )
)
"""The frames that end an HTTP/2 connection before its first request: SETTINGS, then GOAWAY with the reason."""

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
