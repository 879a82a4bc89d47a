"""Refusals: the errors only the edge can find, and how any error leaves when no application is there to send it."""

from __future__ import annotations

import http

from gateway.errors import GatewayError, RejectedRequest, Shed, ShedReason, error_body, error_headers


class MalformedRequest(RejectedRequest):
    """400: bytes that are not a request this server accepts; `what` is the fault."""

    code = "invalid_request"

    def __init__(self, what: str) -> None:
        super().__init__(f"Malformed HTTP request: {what}. Correct the request and send it again.")


class RequestTimeout(RejectedRequest):
    """408: the client was too slow to send `what`."""

    status = 408
    code = "request_timeout"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} Send the request again, faster.")


class UriTooLong(RejectedRequest):
    """414."""

    status = 414
    code = "uri_too_long"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The URI exceeds {limit_bytes} bytes. Move data into the body.")


class ExpectationFailed(RejectedRequest):
    """417: an expectation other than 100-continue."""

    status = 417
    code = "invalid_request"

    def __init__(self) -> None:
        super().__init__("The only expectation served is 100-continue. Leave out header expect.")


class UpgradeNotServed(RejectedRequest):
    """400: the client requests WebSocket."""

    code = "invalid_request"

    def __init__(self) -> None:
        super().__init__("WebSocket is not served here. Use plain HTTP with server-sent events (stream: true).")


class HeadersTooLarge(RejectedRequest):
    """431: the headers have too many bytes or too many fields; the message gives the limit."""

    status = 431
    code = "headers_too_large"

    def __init__(self, what: str) -> None:
        super().__init__(f"The headers exceed {what}. Send less.")


def explain_refusal(reason: str, data: bytes) -> MalformedRequest:
    """Return the 400 for bytes that the parser could not read; `data` is the read in which it gave up."""
    if data.startswith(b"PRI * HTTP/2"):  # behind a request in HTTP/1.1
        return MalformedRequest("HTTP/2 is not served on this port, use HTTP/1.1")
    if data.startswith(b"\x16\x03"):
        return MalformedRequest("TLS is not served on this port, use http://")
    return MalformedRequest(reason or "not HTTP")


def too_many_connections() -> Shed:
    """Return the 503 for a connection that does not fit; its lane is empty because nothing was read."""
    hint = "Retry in a second, or reuse connections that are already open."
    message = f"This server has no connection left. {hint}"
    return Shed(ShedReason.OVERLOAD, lane="", message=message, hint=hint, predicted_wait_s=1.0)


def too_many_unfinished() -> Shed:
    """Return the 503 for a head in pieces while too many others are unfinished.

    Its lane is empty because no head was read.
    """
    hint = "Send the request in one piece, or retry in a second."
    message = f"This server holds too many unfinished requests. {hint}"
    return Shed(ShedReason.OVERLOAD, lane="", message=message, hint=hint, predicted_wait_s=1.0)


def render_refusal(error: GatewayError, *, request_id: str, date_line: bytes = b"", body: bytes | None = None) -> bytes:
    """Return the whole closing response as bytes.

    Args:
        error: The refusal.
        request_id: Id of the request.
        date_line: Ready header line with its CRLF.
        body: The error in the envelope of another API; None for the usual one.
    """
    body = error_body(error) if body is None else body
    lines = [b"HTTP/1.1 %d %b\r\n" % (error.status, http.HTTPStatus(error.status).phrase.encode()), date_line]
    lines += [b"%b: %b\r\n" % header for header in error_headers(error)]
    lines.append(b"x-request-id: %b\r\ncontent-length: %d\r\n" % (request_id.encode(), len(body)))
    lines.append(b"connection: close\r\n\r\n")
    return b"".join([*lines, body])
