from __future__ import annotations

import pytest

from gateway.upstreams.http1.request import RequestEncoder, UpstreamRequest
from gateway.upstreams.http1.target import Target

ENCODER = RequestEncoder(Target.parse("http://engine:8000/base"))


def test_encodes_a_request_with_its_host_and_length() -> None:
    request = UpstreamRequest(b"POST", b"/v1/chat/completions", [(b"traceparent", b"00-1")], b"{}")
    assert ENCODER.encode_head(request) == (
        b"POST /base/v1/chat/completions HTTP/1.1\r\n"
        b"host: engine:8000\r\naccept-encoding: identity\r\ntraceparent: 00-1\r\ncontent-length: 2\r\n\r\n"
    )


def test_headers_in_common_come_first_and_each_request_has_its_own() -> None:
    fixed = ((b"accept", b"*/*"),)
    heads = [
        ENCODER.encode_head(UpstreamRequest(b"POST", b"/x", [(b"x-request-id", name)], b"", fixed))
        for name in (b"a", b"b")
    ]
    assert heads == [
        b"POST /base/x HTTP/1.1\r\nhost: engine:8000\r\naccept-encoding: identity\r\naccept: */*\r\n"
        b"x-request-id: %b\r\ncontent-length: 0\r\n\r\n" % name
        for name in (b"a", b"b")
    ]


def test_many_different_headers_in_common_do_not_pile_up() -> None:
    encoder = RequestEncoder(Target.parse("http://engine:8000"))
    for number in range(2000):
        encoder.encode_head(UpstreamRequest(b"GET", b"/x", fixed=((b"a", b"%d" % number),)))
    assert len(encoder._begins) <= 256


def test_a_get_without_a_body_has_no_length() -> None:
    assert b"content-length" not in ENCODER.encode_head(UpstreamRequest(b"GET", b"/livez"))


def test_a_post_without_a_body_reports_it() -> None:
    assert b"content-length: 0\r\n" in ENCODER.encode_head(UpstreamRequest(b"POST", b"/x"))


@pytest.mark.parametrize(
    "request_",
    [
        UpstreamRequest(b"POST", b"/x", [(b"a", b"b\r\nhost: evil")]),
        UpstreamRequest(b"POST", b"/x", [(b"a", b"b\nc")]),
        UpstreamRequest(b"POST", b"/x", fixed=((b"a", b"b\r\nhost: evil"),)),
        UpstreamRequest(b"POST", b"/x", [(b"a", b"b\0c")]),
        UpstreamRequest(b"POST", b"/x", [(b"a: b\r\nc", b"d")]),
        UpstreamRequest(b"POST", b"/x", [(b"transfer-encoding:", b"chunked")]),
        UpstreamRequest(b"POST", b"/x", [(b"", b"d")]),
        UpstreamRequest(b"POST", b"/x y", []),
        UpstreamRequest(b"POST /", b"/x", []),
        UpstreamRequest(b"POST", b"x", []),
        UpstreamRequest(b"POST", b"/x\r\n\r\nGET /admin", []),
    ],
)
def test_refuses_bytes_that_would_change_the_framing(request_: UpstreamRequest) -> None:
    with pytest.raises(ValueError):
        ENCODER.encode_head(request_)


@pytest.mark.parametrize("name", [b"Host", b"content-length", b"Transfer-Encoding", b"connection", b"expect"])
def test_refuses_headers_that_belong_to_the_client(name: bytes) -> None:
    with pytest.raises(ValueError, match="set by the client"):
        ENCODER.encode_head(UpstreamRequest(b"POST", b"/x", [(name, b"1")]))
