"""The head of a request: everything the parser lets through and this server does not."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from engine.frontend.request.asgi import HeaderList
from engine.frontend.request.errors import ApiError

SERVED_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""Methods that reach the application; all others are answered with 405."""
_METHODS: Final = frozenset(method.encode() for method in SERVED_METHODS)
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(.*)", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SINGLE: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"expect"}
    | {b"authorization"}
)
"""Headers with a single value, which identify the client or frame the request; a second one is refused."""
_MAX_LENGTH_DIGITS: Final = 19
PRIOR_KNOWLEDGE: Final = b"PRI * HTTP/2"
"""Beginning of a connection whose client speaks HTTP/2 without an offer (RFC 9113, section 3.3)."""
_EXPLANATION: Final = b"HTTP/2 is not served here, use HTTP/1.1"
HTTP2_FAREWELL: Final = (
    b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    + (8 + len(_EXPLANATION)).to_bytes(3, "big")
    + b"\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0d"
    + _EXPLANATION
)
"""SETTINGS and GOAWAY (HTTP_1_1_REQUIRED, no stream was processed), which end an HTTP/2 connection."""
_OFFER_HEADERS: Final = frozenset({b"upgrade", b"http2-settings"})


def check_head(method: bytes, version: str, target: bytes, headers: HeaderList) -> dict[bytes, bytes]:
    """Check a complete head, names in lower case; returns the headers that may be there only once.

    Raises the ApiError that its first fault deserves.
    """
    if version not in ("1.0", "1.1"):
        raise malformed("only HTTP/1.1 and HTTP/1.0 are served here")
    if method not in _METHODS:
        allow = ", ".join(SERVED_METHODS)
        message = f"Method {method.decode('ascii')} is not allowed here. Use {allow}."
        raise ApiError(405, message, code="method_not_allowed", headers={"allow": allow})
    single = _single_values(headers)
    host = single.get(b"host")
    if host is None and version == "1.1":
        raise malformed("header host is missing")
    if host is not None and _AUTHORITY.fullmatch(host) is None:
        raise malformed("header host must be a plain host or host:port")
    _check_target(target, method, host)
    _check_body(single, version)
    return single


def malformed(fault: str) -> ApiError:
    """Return the error (400) for bytes that are no valid request."""
    message = f"Malformed HTTP request: {fault}. Correct the request and send it again."
    return ApiError(400, message, code="invalid_request")


def unparsable(reason: str, data: bytes) -> ApiError:
    """Return the 400 for bytes that the parser gave up on; `data` is the read in which it did."""
    if data.startswith(PRIOR_KNOWLEDGE):  # behind a request in HTTP/1.1
        return malformed("HTTP/2 is not served here, use HTTP/1.1")
    if data.startswith(b"\x16\x03"):
        return malformed("TLS is not served here, use http://")
    return malformed(reason or "not HTTP")


def refuse_websocket(headers: HeaderList) -> None:
    """Raise for a client that cannot go on without WebSocket; other offers (h2c) are optional by their RFC."""
    if any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers):
        message = "WebSocket is not served here. Use plain HTTP with server-sent events (stream: true)."
        raise ApiError(400, message, code="invalid_request")


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: HeaderList) -> bytes:
    """Return the request's head, in bytes, without the offer of another protocol."""
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


def _single_values(headers: HeaderList) -> dict[bytes, bytes]:
    single: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _SINGLE:
            if name in single:
                raise malformed(f"header {name.decode('ascii')} appears twice")
            single[name] = value
    return single


def _check_target(target: bytes, method: bytes, host: bytes | None) -> None:
    if target == b"*" and method == b"OPTIONS":
        return
    if target[:1] != b"/":
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise malformed("the request target must be a path")
        if host is None or absolute[1].lower() != host.lower():
            raise malformed("the request target names another host than header host")
        target = absolute[2]
    if b"#" in target:
        raise malformed("the request target carries a fragment")
    raw_path = target.partition(b"?")[0]
    if b"%" not in raw_path and raw_path.isascii():
        return
    try:
        path = unquote(raw_path.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise malformed("the path is not UTF-8") from None
    if _CONTROL.search(path) is not None:
        raise malformed("the path contains an encoded control character")


def _check_body(single: dict[bytes, bytes], version: str) -> None:
    if b"content-encoding" in single and single[b"content-encoding"].lower() not in (b"", b"identity"):
        message = "Compressed bodies are not accepted. Send the body without content-encoding."
        raise ApiError(415, message, code="unsupported_media_type")
    encoding, length = single.get(b"transfer-encoding"), single.get(b"content-length")
    if encoding is not None and length is not None:
        raise malformed("content-length and transfer-encoding exclude each other")
    if encoding is not None and (version != "1.1" or encoding.lower() != b"chunked"):
        raise malformed("the only transfer-encoding is chunked, in HTTP/1.1")
    if length is not None and (not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS):
        raise malformed("content-length is not a number")
    if b"expect" in single and single[b"expect"].lower() != b"100-continue":
        message = "The only expectation served is 100-continue. Leave out header expect."
        raise ApiError(417, message, code="invalid_request")
