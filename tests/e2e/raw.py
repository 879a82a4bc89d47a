"""Raw HTTP over a socket, for requests no client library would send."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class RawReply:
    """The first response on a connection, and everything that came behind it."""

    status: int
    headers: dict[str, str]
    body: bytes
    behind: bytes
    is_closed: bool

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The inside of the error envelope."""
        error: dict[str, Any] = self.json["error"]
        return error


def send_raw(url: str, data: bytes, *, is_last: bool = True) -> RawReply:
    """Send `data` on a fresh connection; with `is_last` read until the server closes, else one response only."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    with socket.create_connection((where.hostname, where.port), TIMEOUT_S) as connection:
        connection.sendall(data)
        return _read(connection, is_last=is_last)


def request(
    body: Any = None,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> bytes:
    """A request as bytes, calling to close behind it; `body` is JSON unless it is bytes already."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"host": "penstock.test", "connection": "close"}
    if body is not None:
        given |= {"content-type": "application/json", "content-length": str(len(data))}
    lines = [f"{name}: {value}" for name, value in (given | (headers or {})).items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1") + data


def _read(connection: socket.socket, *, is_last: bool) -> RawReply:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65_536)
        assert piece, f"closed without a response: {received!r}"
        received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = int(headers["content-length"]) if "content-length" in headers else None
    is_closed = False
    while is_last or length is None or len(rest) < length:
        piece = connection.recv(65_536)
        if not piece:
            is_closed = True
            break
        rest += piece
    end = len(rest) if length is None else length
    return RawReply(status, headers, rest[:end], rest[end:], is_closed)


def chat(content: Any = "What is 3 + 4?", **fields: Any) -> dict[str, Any]:
    """A good, small request."""
    return {"model": "auto", "messages": [{"role": "user", "content": content}], "max_tokens": 4, **fields}


def assert_error(reply: RawReply, status: int, *codes: str) -> None:
    """Status, envelope and headers of one error, with nothing behind it."""
    assert reply.status == status, reply.body[:500]
    assert {"message", "type", "param", "code"} <= reply.error.keys()
    assert reply.error["code"] in codes
    assert reply.headers["x-penstock-error-code"] == reply.error["code"]
    assert reply.headers["x-request-id"].startswith("req_")
    assert reply.behind == b""


def assert_serving(url: str, headers: dict[str, str] | None = None) -> None:
    """A good request on a fresh connection is answered."""
    reply = send_raw(url, request(chat(), headers=headers))
    assert reply.status == 200, reply.body[:500]
