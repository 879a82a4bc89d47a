"""The head of a request: everything the parser lets through and this server does not."""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast
from urllib.parse import unquote

import msgspec
from uvicorn._types import HTTPScope

from gateway.errors import MethodNotAllowed, RequestTooLarge, UnsupportedMediaType
from gateway.http.limits import EdgeLimits
from gateway.http.refusal import ExpectationFailed, HeadersTooLarge, MalformedRequest

Headers = list[tuple[bytes, bytes]]

METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""Methods that may reach an application; all others get 405."""

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_METHODS: Final = frozenset(method.encode("ascii") for method in METHODS)
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# One value decides the caller, the target and the end of the request; a second value is an attack or a broken client.
_SINGLE: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"expect"}
    | {b"authorization"}
)


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """A head that passed: the target split, the framing decided. `content_length` is None for a chunked body."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    content_length: int | None
    expects_continue: bool


def read_head(*, method: bytes, version: str, target: bytes, headers: Headers, limits: EdgeLimits) -> RequestHead:
    """Check a complete head (names in lower case); raises the GatewayError its first fault deserves."""
    if len(headers) > limits.header.max_fields:
        raise HeadersTooLarge(f"{limits.header.max_fields} fields")
    if version not in ("1.1", "1.0"):
        raise MalformedRequest("only HTTP/1.1 and HTTP/1.0 are served on this port")
    if method not in _METHODS:
        raise MethodNotAllowed(method.decode("ascii"), METHODS)
    single = _single_values(headers)
    host = _check_host(single.get(b"host"), version)
    raw_path, query = _split_target(target, method, host)
    if b"content-encoding" in single:
        _check_encoding(single[b"content-encoding"])
    length = _body_length(single, version, limits)
    return RequestHead(
        method=method.decode("ascii"),
        path=_decode_path(raw_path),
        raw_path=raw_path,
        query=query,
        content_length=length,
        expects_continue=b"expect" in single and _expects_continue(single[b"expect"], version),
    )


def http_scope(
    head: RequestHead,
    *,
    version: str,
    headers: Headers,
    server: tuple[str, int | None] | None,
    client: tuple[str, int] | None,
    scheme: str,
    draining: asyncio.Event,
) -> HTTPScope:
    """Return the ASGI scope of a request; the application may fill `state` further."""
    return cast(
        HTTPScope,
        {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": server,
            "client": client,
            "scheme": scheme,
            "root_path": "",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": headers,
            "state": {"draining": draining},
        },
    )


def request_too_large(limits: EdgeLimits) -> RequestTooLarge:
    """Return the 413 for a declared length, and for a chunked body that grew past the limit."""
    return RequestTooLarge(f"The body exceeds {limits.body.max_bytes} bytes. Send a smaller one.")


def _single_values(headers: Headers) -> dict[bytes, bytes]:
    single: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _SINGLE:
            if name in single:
                raise MalformedRequest(f"header {name.decode('ascii')} appears twice")
            single[name] = value
    return single


def _check_host(host: bytes | None, version: str) -> bytes | None:
    if host is None:
        if version == "1.0":  # the only version whose clients (health probes) may leave it out
            return None
        raise MalformedRequest("header host is missing")
    if _AUTHORITY.fullmatch(host) is None:
        raise MalformedRequest("header host must be a plain host or host:port")
    return host


def _split_target(target: bytes, method: bytes, host: bytes | None) -> tuple[bytes, bytes]:
    if target[:1] != b"/":
        if target == b"*" and method == b"OPTIONS":
            return target, b""
        target = _origin_form(target, host)
    if b"#" in target:
        raise MalformedRequest("the request target carries a fragment")
    raw_path, _, query = target.partition(b"?")
    return raw_path, query


def _origin_form(target: bytes, host: bytes | None) -> bytes:
    """Path and query of an absolute-form target, whose authority must be the Host header's."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise MalformedRequest("the request target must be a path")
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    authority, tail = rest[:end], rest[end:]
    if host is None or authority.lower() != host.lower():
        raise MalformedRequest("the request target names another host than header host")
    return tail if tail[:1] == b"/" else b"/" + tail


def _decode_path(raw_path: bytes) -> str:
    try:
        path = raw_path.decode("ascii")
        if "%" not in path:
            return path
        path = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise MalformedRequest("the path is not UTF-8") from None
    if _CONTROL.search(path) is not None:
        raise MalformedRequest("the path contains an encoded control character")
    return path


def _check_encoding(value: bytes) -> None:
    if value.strip(b" \t").lower() not in (b"", b"identity"):
        raise UnsupportedMediaType("Compressed bodies are not accepted. Send the body without content-encoding.")


def _body_length(single: dict[bytes, bytes], version: str, limits: EdgeLimits) -> int | None:
    encoding = single.get(b"transfer-encoding")
    declared = single.get(b"content-length")
    if encoding is not None:
        if declared is not None:
            raise MalformedRequest("content-length and transfer-encoding exclude each other")
        if version != "1.1" or encoding.lower() != b"chunked":
            raise MalformedRequest("the only transfer-encoding is chunked, in HTTP/1.1")
        return None
    if declared is None:
        return 0
    # bytes.isdigit is ASCII only, and the length check keeps int() away from absurd input.
    if not declared.isdigit() or len(declared) > 19:
        raise MalformedRequest("content-length is not a number")
    length = int(declared)
    if length > limits.body.max_bytes:
        raise request_too_large(limits)
    return length


def _expects_continue(value: bytes, version: str) -> bool:
    if value.lower() != b"100-continue":
        raise ExpectationFailed()
    return version == "1.1"
