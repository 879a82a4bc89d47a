"""Coded bodies: inflated within bounds, or refused by name; and header values as RFC 9110 has them."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from gateway.upstreams.http1.content_coding import MAX_INFLATED_AT_ONCE, decoder_of
from gateway.upstreams.http1.errors import CodingError
from gateway.upstreams.http1.sse import is_event_stream
from gateway.util.header_values import media_type

BODY = b'{"choices":[' + b'{"index":0},' * 1000 + b"]}"


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def inflated(coding: bytes, body: bytes) -> bytes:
    decoder = decoder_of([coding], 200)
    assert decoder is not None
    read = decoder.feed(body)
    decoder.finish()
    return read


CODED = [
    (b"gzip", gzip.compress(BODY, mtime=0)),
    (b"GZip", gzip.compress(BODY, mtime=0)),
    (b"x-gzip", gzip.compress(BODY, mtime=0)),
    (b"gzip, identity", gzip.compress(BODY, mtime=0)),
    (b"gzip", gzip.compress(BODY[:100]) + gzip.compress(BODY[100:])),
    (b"deflate", zlib.compress(BODY)),
    (b"Deflate", raw_deflate(BODY)),
]


@pytest.mark.parametrize(("coding", "coded"), CODED)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_coded_body_is_read_however_it_is_cut(coding: bytes, coded: bytes, size: int) -> None:
    decoder = decoder_of([coding], 200)
    assert decoder is not None
    pieces = [decoder.feed(coded[at : at + size]) for at in range(0, len(coded), size)]
    decoder.finish()

    assert b"".join(pieces) == BODY


@pytest.mark.parametrize(("coding", "coded"), CODED[:3] + CODED[5:])
def test_a_coded_body_that_ends_in_its_middle_is_not_whole(coding: bytes, coded: bytes) -> None:
    decoder = decoder_of([coding], 200)
    assert decoder is not None
    decoder.feed(coded[: len(coded) // 2])
    with pytest.raises(CodingError, match="middle"):
        decoder.finish()


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_what_is_not_coded_as_it_states_is_refused_and_nothing_is_whole(coding: bytes) -> None:
    for junk in (b"plain text", random.Random(1).randbytes(300), gzip.compress(b"x") + b"junk junk junk"):
        with pytest.raises(CodingError):
            inflated(coding, junk)
    empty = decoder_of([coding], 200)
    assert empty is not None
    empty.finish()


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_a_bomb_is_refused_before_it_is_large(coding: bytes) -> None:
    zeros = bytes(4 * MAX_INFLATED_AT_ONCE)
    coded = gzip.compress(zeros, mtime=0) if coding == b"gzip" else zlib.compress(zeros)
    decoder = decoder_of([coding], 200)
    assert decoder is not None
    with pytest.raises(CodingError, match="inflates"):
        decoder.feed(coded)


@pytest.mark.parametrize("value", [[], [b""], [b"identity"], [b"Identity", b" , identity"]])
def test_a_body_that_is_not_coded_needs_no_decoder(value: list[bytes]) -> None:
    assert decoder_of(value, 200) is None


@pytest.mark.parametrize("value", [[b"br"], [b"zstd"], [b"gzip, br"], [b"gzip", b"gzip"], [b"made-up"]])
def test_an_unknown_coding_is_named_but_an_errors_status_is_reported_all_the_same(value: list[bytes]) -> None:
    with pytest.raises(CodingError, match=value[-1].decode().split(",")[-1].strip()):
        decoder_of(value, 200)
    decoder = decoder_of(value, 400)
    assert decoder is not None
    assert decoder.feed(b"\x8b\x02\x80") == b""
    decoder.finish()


@pytest.mark.parametrize(
    ("value", "is_stream"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; Charset=UTF-8", True),
        (b"TEXT/EVENT-STREAM", True),
        (b"text/event-stream ;charset=utf-8", True),
        (b"text/event-streaming", False),
        (b"text/plain", False),
        (b"application/json; note=text/event-stream", False),
        (b"", False),
    ],
)
def test_media_types_have_no_case_and_parameters_are_silent_of_them(value: bytes, is_stream: bool) -> None:
    assert is_event_stream(value) is is_stream
    assert media_type(value) == value.split(b";")[0].strip().lower()
