from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstreams.http1.reader import ResponseReader, WireError, WireHeadTooLarge, WireLimits
from tests.gateway.upstreams.scripted import CHUNKED_HEAD, LAST_CHUNK, chunk, plain

LIMITS = WireLimits(max_head_bytes=512, max_framing_bytes=128)


Mutation = tuple[str, int, bytes]


def reader(method: bytes = b"POST") -> ResponseReader:
    made = ResponseReader(LIMITS)
    made.begin(method)
    return made


def read(data: bytes, method: bytes = b"POST") -> ResponseReader:
    made = reader(method)
    made.feed(data)
    return made


def feed_again_and_again(made: ResponseReader, data: bytes) -> None:
    for _ in range(100):
        made.feed(data)


CHUNKED = CHUNKED_HEAD + chunk("zwölf".encode()) + chunk(b"data: {}\n\n") + LAST_CHUNK
WITH_TRAILER = CHUNKED_HEAD + chunk(b"abc") + b"0\r\nx-checksum: 1\r\n\r\n"
WITH_EXTENSION = CHUNKED_HEAD + b"3;name=value\r\nabc\r\n" + LAST_CHUNK
WITH_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + plain(b"body")

WHOLE = {
    plain(b"hello"): b"hello",
    plain(b""): b"",
    CHUNKED: "zwölf".encode() + b"data: {}\n\n",
    WITH_TRAILER: b"abc",
    WITH_EXTENSION: b"abc",
    WITH_CONTINUE: b"body",
}


@pytest.mark.parametrize(("data", "body"), WHOLE.items())
def test_reads_the_same_wherever_the_bytes_are_cut(data: bytes, body: bytes) -> None:
    for cut in range(1, len(data)):
        made = reader()
        made.feed(data[:cut])
        assert not made.is_complete
        made.feed(data[cut:])
        assert made.is_complete
        assert (made.status, b"".join(made.pieces), made.keep_alive) == (200, body, True)


@settings(deadline=None)  # a busy machine is no finding
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_any_chunked_body_survives_any_slicing(parts: list[bytes], data: st.DataObject) -> None:
    wire = CHUNKED_HEAD + b"".join(map(chunk, parts)) + LAST_CHUNK
    made = reader()
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        made.feed(wire[:size])
        wire = wire[size:]
    assert made.is_complete
    assert b"".join(made.pieces) == b"".join(parts)


def test_header_names_are_lower_case_and_in_order() -> None:
    made = read(b"HTTP/1.1 200 OK\r\nX-B: 1\r\nX-A:  2 \r\nContent-Length: 0\r\n\r\n")
    assert made.headers[:2] == [(b"x-b", b"1"), (b"x-a", b"2")]


def test_trailers_do_not_become_headers() -> None:
    assert b"x-checksum" not in dict(read(WITH_TRAILER).headers)


def test_early_hints_do_not_become_headers() -> None:
    assert b"link" not in dict(read(WITH_CONTINUE).headers)


@pytest.mark.parametrize(
    ("data", "method"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"HEAD"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"HEAD"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"POST"),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 1000\r\n\r\n", b"GET"),
    ],
)
def test_some_responses_have_no_body_whatever_they_declare(data: bytes, method: bytes) -> None:
    made = read(data, method)
    assert made.is_complete
    made.begin(b"POST")
    made.feed(plain(b"next"))
    assert (made.is_complete, made.pieces) == (True, [b"next"])


def test_one_reader_serves_many_responses() -> None:
    made = reader()
    for number in range(3):
        made.feed(plain(b"%d" % number))
        assert made.pieces == [b"%d" % number]
        made.begin(b"POST")
        assert not made.started


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n", True),
    ],
)
def test_knows_whether_the_connection_stays(head: bytes, keep_alive: bool) -> None:
    assert read(head).keep_alive is keep_alive


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    made = read(b"HTTP/1.1 200 OK\r\n\r\nabc")
    assert not made.is_complete
    assert not made.keep_alive
    assert made.eof()
    assert made.is_complete


@pytest.mark.parametrize("data", [plain(b"hello")[:-1], CHUNKED[:-1], CHUNKED_HEAD, b"HTTP/1.1 200", b""])
def test_any_other_response_does_not_end_with_the_connection(data: bytes) -> None:
    made = reader()
    if data:
        made.feed(data)
    assert not made.eof()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5_0\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"0x5\r\nhello\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"-5\r\nhello\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"\r\nhello\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"5\r\nhello!\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"fffffffffffffffffff\r\nhello",
        b"HTTP/1.1 200 OK\nfoo\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x02\x00",
        plain(b"hello") + b"junk",
        plain(b"hello") + plain(b"again"),
        b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
)
def test_refuses_what_is_not_exactly_one_response(data: bytes) -> None:
    made = reader()
    with pytest.raises(WireError):
        made.feed(data)


def test_refuses_a_body_after_a_head_that_allows_none() -> None:
    with pytest.raises(WireError):
        read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"HEAD")


def test_refuses_bytes_before_a_request() -> None:
    with pytest.raises(WireError):
        ResponseReader(LIMITS).feed(b"HTTP/1.1 200 OK\r\n\r\n")


def test_bounds_an_endless_header_line() -> None:
    made = read(b"HTTP/1.1 200 OK\r\nx: ")
    with pytest.raises(WireHeadTooLarge):
        feed_again_and_again(made, b"a" * 64)


def test_bounds_a_large_head_that_comes_at_once() -> None:
    with pytest.raises(WireHeadTooLarge):
        read(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 600 + b"\r\ncontent-length: 0\r\n\r\n")


def test_bounds_endless_informational_responses() -> None:
    made = reader()
    with pytest.raises(WireHeadTooLarge):
        feed_again_and_again(made, b"HTTP/1.1 102 Processing\r\n\r\n")


@pytest.mark.parametrize("line", [b"0" * 16, b"5;" + b"x" * 14])
def test_bounds_an_endless_chunk_size_line(line: bytes) -> None:
    made = read(CHUNKED_HEAD + line)
    with pytest.raises(WireError):
        feed_again_and_again(made, line[-1:] * 16)


def test_bounds_endless_trailers() -> None:
    made = read(CHUNKED_HEAD + b"0\r\n")
    with pytest.raises(WireError):
        feed_again_and_again(made, b"x-trailer: 1\r\n")


def test_many_tiny_chunks_are_not_framing_alone() -> None:
    made = read(CHUNKED_HEAD)
    for _ in range(500):
        made.feed(chunk(b"x"))
    assert len(made.pieces) == 500


MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert"]), st.integers(0, 400), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)  # a busy machine is no finding
@given(st.sampled_from([*WHOLE, b""]), MUTATIONS, st.integers(1, 50))
def test_whatever_comes_it_is_a_response_or_a_wire_error(wire: bytes, mutations: list[Mutation], size: int) -> None:
    for kind, place, patch in mutations:
        at = place % (len(wire) + 1)
        dropped = {"flip": len(patch), "cut": len(patch), "insert": 0}[kind]
        wire = wire[:at] + (b"" if kind == "cut" else patch) + wire[at + dropped :]
    made = reader()
    try:
        for at in range(0, len(wire), size):
            made.feed(wire[at : at + size])
    except WireError:
        return
    assert made.has_head or not made.pieces
    assert made.is_complete or not made.eof() or b"content-length" not in dict(made.headers)
