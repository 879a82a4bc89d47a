"""A request's head: what passes, and the first fault of what does not."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import GatewayError
from gateway.http.head import Headers, RequestHead, http_scope, read_head
from gateway.http.limits import BodyLimits, EdgeLimits, HeaderLimits

LIMITS = EdgeLimits(header=HeaderLimits(max_fields=4), body=BodyLimits(max_bytes=100))
HOST = (b"host", b"gateway:8080")


def head(
    *headers: tuple[bytes, bytes], method: bytes = b"POST", target: bytes = b"/v1/x?a=1", version: str = "1.1"
) -> RequestHead:
    return read_head(method=method, version=version, target=target, headers=[HOST, *headers], limits=LIMITS)


def status(headers: Headers, *, method: bytes = b"POST", target: bytes = b"/", version: str = "1.1") -> int:
    with pytest.raises(GatewayError) as caught:
        read_head(method=method, version=version, target=target, headers=headers, limits=LIMITS)
    return caught.value.status


def test_path_query_and_length_are_taken_apart() -> None:
    found = head((b"content-length", b"7"))
    assert (found.path, found.query, found.content_length) == ("/v1/x", b"a=1", 7)
    assert head().content_length == 0
    assert head((b"transfer-encoding", b"Chunked")).content_length is None


def test_an_escaped_path_is_decoded_and_its_raw_form_stored() -> None:
    found = head(target=b"/caf%C3%A9")
    assert (found.path, found.raw_path) == ("/café", b"/caf%C3%A9")
    assert status([HOST], target=b"/%ff") == 400
    assert status([HOST], target=b"/a%00b") == 400


def test_an_absolute_target_must_name_the_host_that_the_header_names() -> None:
    assert head(target=b"http://GATEWAY:8080/v1/x").path == "/v1/x"
    assert head(target=b"http://gateway:8080?b=2").query == b"b=2"
    assert status([HOST], target=b"http://other/v1/x") == 400
    assert status([HOST], target=b"v1/x") == 400
    assert status([HOST], target=b"/x#y") == 400


def test_the_star_is_for_options_only() -> None:
    assert head(method=b"OPTIONS", target=b"*").raw_path == b"*"
    assert status([HOST], method=b"GET", target=b"*") == 400


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([HOST, HOST], 400),
        ([(b"host", b"a b")], 400),
        ([(b"host", b"user@gateway")], 400),
        ([HOST, (b"content-length", b"-1")], 400),
        ([HOST, (b"content-length", b"1" * 30)], 400),
        ([HOST, (b"content-length", b"101")], 413),
        ([HOST, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")], 400),
        ([HOST, (b"transfer-encoding", b"gzip, chunked")], 400),
        ([HOST, (b"content-encoding", b"gzip")], 415),
        ([HOST, (b"expect", b"200-ok")], 417),
        ([HOST, *[(b"x", b"y")] * 4], 431),
        ([HOST, (b"authorization", b"a"), (b"authorization", b"b")], 400),
    ],
)
def test_each_fault_has_its_status(headers: Headers, expected: int) -> None:
    assert status(headers) == expected


def test_other_methods_and_versions_are_refused() -> None:
    assert status([HOST], method=b"TRACE") == 405
    assert status([HOST], version="2.0") == 400
    assert status([], version="1.1") == 400
    assert read_head(method=b"GET", version="1.0", target=b"/", headers=[], limits=LIMITS).path == "/"


def test_a_client_of_http_1_0_is_not_reported_to_continue() -> None:
    assert head((b"expect", b"100-Continue")).expects_continue
    assert not head((b"expect", b"100-continue"), version="1.0").expects_continue


def test_the_scope_has_the_decoded_path_and_reports_when_the_server_drains() -> None:
    draining, headers = asyncio.Event(), [HOST]
    scope = http_scope(
        head(target=b"/caf%C3%A9?q"),
        version="1.1",
        headers=headers,
        server=None,
        client=("::1", 5),
        scheme="https",
        draining=draining,
    )
    assert scope["scheme"] == "https"
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/café", b"/caf%C3%A9", b"q")
    assert scope["state"]["draining"] is draining
