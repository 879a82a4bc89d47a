"""Heads of requests that are served and those that are refused."""

from __future__ import annotations

import pytest

from engine.frontend.http.head import check_head, head_without_upgrade, refuse_websocket, unparsable
from engine.frontend.request.asgi import HeaderList
from engine.frontend.request.errors import ApiError

HOST = (b"host", b"a.example:80")


def check(
    *headers: tuple[bytes, bytes], method: bytes = b"POST", version: str = "1.1", target: bytes = b"/v1/models"
) -> dict[bytes, bytes]:
    return check_head(method, version, target, list(headers))


def test_a_plain_head_passes_and_its_single_headers_are_returned() -> None:
    assert check(HOST, (b"x-more", b"1"), (b"content-length", b"5")) == {
        b"host": b"a.example:80",
        b"content-length": b"5",
    }
    assert check(version="1.0") == {}
    assert check(HOST, method=b"OPTIONS", target=b"*")
    assert check(HOST, target=b"HTTP://A.example:80/path?q")
    assert check((b"host", b"[::1]:8000"), (b"transfer-encoding", b"Chunked"), (b"expect", b"100-Continue"))


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ([], 400, "header host is missing"),
        ([(b"host", b"a b")], 400, "header host must be"),
        ([HOST, HOST], 400, "header host appears twice"),
        ([HOST, (b"authorization", b"a"), (b"authorization", b"a")], 400, "authorization appears twice"),
        ([HOST, (b"content-length", b"5"), (b"transfer-encoding", b"chunked")], 400, "exclude each other"),
        ([HOST, (b"content-length", b"+5")], 400, "not a number"),
        ([HOST, (b"content-length", b"1" * 20)], 400, "not a number"),
        ([HOST, (b"transfer-encoding", b"gzip, chunked")], 400, "only transfer-encoding is chunked"),
        ([HOST, (b"content-encoding", b"gzip")], 415, "Compressed bodies"),
        ([HOST, (b"expect", b"200-ok")], 417, "100-continue"),
    ],
)
def test_a_header_at_fault_is_named(headers: HeaderList, status: int, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        check(*headers)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (b"v1", "must be a path"),
        (b"http://b.example/v1", "names another host"),
        (b"/v1#x", "fragment"),
        (b"/%ff", "not UTF-8"),
        (b"/a%0Ab", "control character"),
        (b"*", "must be a path"),
    ],
)
def test_a_target_that_is_no_path_of_ours_is_refused(target: bytes, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        check(HOST, target=target)


def test_other_methods_are_reported_which_ones_there_are() -> None:
    with pytest.raises(ApiError) as caught:
        check(HOST, method=b"TRACE")
    assert caught.value.status == 405
    assert "POST" in caught.value.headers["allow"]


def test_chunks_need_the_newer_version() -> None:
    with pytest.raises(ApiError, match="chunked"):
        check((b"transfer-encoding", b"chunked"), version="1.0")
    with pytest.raises(ApiError, match="only HTTP/1"):
        check(HOST, version="2.0")


@pytest.mark.parametrize(
    ("data", "message"), [(b"PRI * HTTP/2.0\r\n", "HTTP/2"), (b"\x16\x03\x01", "TLS"), (b"junk", "bad line")]
)
def test_bytes_of_another_protocol_are_reported_which_one_is_served(data: bytes, message: str) -> None:
    assert message in unparsable("bad line", data).message


def test_an_offer_of_another_protocol_is_taken_out_and_everything_else_stays() -> None:
    headers = [HOST, (b"connection", b"keep-alive, Upgrade, HTTP2-Settings"), (b"upgrade", b"h2c"), (b"x", b"1")]
    refuse_websocket(headers)
    found = head_without_upgrade(b"GET", b"/livez", "1.1", headers)
    assert found == b"GET /livez HTTP/1.1\r\nhost: a.example:80\r\nconnection: keep-alive\r\nx: 1\r\n\r\n"
    only = head_without_upgrade(b"GET", b"/", "1.1", [(b"connection", b"upgrade")])
    assert only == b"GET / HTTP/1.1\r\n\r\n"


def test_a_client_that_needs_websocket_is_refused() -> None:
    with pytest.raises(ApiError, match="WebSocket is not served"):
        refuse_websocket([(b"upgrade", b"h2c, WebSocket")])
