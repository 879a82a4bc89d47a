"""Answers of the edge itself: whole, closing, and in the envelope of every other error."""

from __future__ import annotations

import json

import pytest

from gateway.errors import GatewayError
from gateway.http.refusal import (
    ExpectationFailed,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimeout,
    UpgradeNotServed,
    UriTooLong,
    explain_refusal,
    render_refusal,
    too_many_connections,
    too_many_unfinished,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MalformedRequest("x"), 400),
        (UpgradeNotServed(), 400),
        (RequestTimeout("Slow."), 408),
        (UriTooLong(9), 414),
        (ExpectationFailed(), 417),
        (HeadersTooLarge("9 fields"), 431),
        (too_many_connections(), 503),
        (too_many_unfinished(), 503),
    ],
)
def test_a_refusal_is_a_whole_answer_that_closes(error: GatewayError, status: int) -> None:
    raw = render_refusal(error, request_id="req_1", date_line=b"date: now\r\n")
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0].startswith(b"HTTP/1.1 %d " % status)
    assert {b"connection: close", b"x-request-id: req_1", b"date: now", b"content-length: %d" % len(body)} <= set(lines)
    assert json.loads(body)["error"]["message"] == error.message


def test_a_refusal_for_load_reports_when_to_come_back() -> None:
    for error in (too_many_connections(), too_many_unfinished()):
        assert b"\r\nretry-after: 1\r\n" in render_refusal(error, request_id="req_1")


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 is not served"),
        (b"\x16\x03\x01\x02\x00", "TLS is not served"),
        (b"GARBAGE", "bad method"),
    ],
)
def test_another_protocol_is_named_and_else_the_parsers_reason_is_reported(data: bytes, reported: str) -> None:
    assert reported in explain_refusal("bad method", data).message
    assert "not HTTP" in explain_refusal("", b"GARBAGE").message
