from __future__ import annotations

import pytest

from loadtests.clients.http_client import BadResponse, ResponseScanner, request_bytes

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
STREAM = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"a\r\ndata: {}\n\n\r\n" + b"e\r\ndata: [DONE]\n\n\r\n" + b"0\r\n\r\n"
)


@pytest.mark.parametrize("response", [PLAIN, STREAM])
def test_finds_the_end_wherever_the_bytes_are_cut(response: bytes) -> None:
    for cut in range(1, len(response)):
        scanner = ResponseScanner(keep_body=True)
        assert not scanner.feed(response[:cut])
        assert scanner.feed(response[cut:])
        assert scanner.status == 200
        assert scanner.has_done is (response is STREAM)


def test_gives_the_body_without_its_framing() -> None:
    scanner = ResponseScanner(keep_body=True)
    scanner.feed(STREAM)
    assert scanner.content == b"data: {}\n\ndata: [DONE]\n\n"
    scanner.begin()
    scanner.feed(PLAIN)
    assert scanner.content == b"hello"


def test_a_chunk_that_resembles_the_last_is_not_the_end() -> None:
    scanner = ResponseScanner()
    assert not scanner.feed(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"10\r\n0123456789abcde0\r\n\r\n"[:-2]
    )


def test_knows_whether_the_server_will_close() -> None:
    scanner = ResponseScanner()
    scanner.feed(b"HTTP/1.1 503 Busy\r\nConnection: close\r\ncontent-length: 0\r\n\r\n")
    assert (scanner.status, scanner.keep_alive) == (503, False)


@pytest.mark.parametrize("junk", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", PLAIN + b"more"])
def test_refuses_what_it_does_not_understand(junk: bytes) -> None:
    with pytest.raises(BadResponse):
        ResponseScanner().feed(junk)


def test_writes_requests_with_their_length() -> None:
    assert request_bytes("GET", "/readyz") == b"GET /readyz HTTP/1.1\r\nhost: loadtest\r\n\r\n"
    assert request_bytes("POST", "/x", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
