"""Bytes that are not a request, by name: framing, headers, hosts, request lines and chunks that must be refused."""

from __future__ import annotations

# Hidden behind every vector: a server that misjudges where the bad request ends would serve it.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: edge.test\r\n\r\n"

POST_HEAD = b"POST /bad HTTP/1.1\r\nHost: edge.test\r\n"
GET_HEAD = b"GET /bad HTTP/1.1\r\nHost: edge.test\r\n"
CHUNKED_HEAD = POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def _length(value: bytes) -> bytes:
    return POST_HEAD + b"Content-Length:" + value + b"\r\n\r\nabcde"


def _encoding(value: bytes, version: bytes = b"1.1") -> bytes:
    head = b"POST /bad HTTP/" + version + b"\r\nHost: edge.test\r\nTransfer-Encoding:" + value
    return head + b"\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"


def host_request(*lines: bytes, target: bytes = b"/bad") -> bytes:
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", *lines, b"", b""])


FRAMING = {
    "content-length and transfer-encoding": POST_HEAD
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding and content-length": POST_HEAD
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two equal content-lengths": POST_HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "two different content-lengths": POST_HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "content-length list": _length(b" 5, 5"),
    "content-length +5": _length(b" +5"),
    "content-length -5": _length(b" -5"),
    "content-length 5_0": _length(b" 5_0"),
    "content-length 0x5": _length(b" 0x5"),
    "content-length empty": _length(b""),
    "content-length blank": _length(b"  \t"),
    "content-length 20 digits": _length(b" " + b"9" * 20),
    "content-length 19 digits": _length(b" 18446744073709551616"),
    "content-length after no-break space": _length(b" \xa05"),
    "content-length before next-line": _length(b" 5\x85"),
    "content-length before vertical tab": _length(b" 5\x0b"),
    "content-length two words": _length(b" 5 5"),
    "transfer-encoding twice in a list": _encoding(b" chunked, chunked"),
    "transfer-encoding behind a comma": _encoding(b" ,chunked"),
    "transfer-encoding before a comma": _encoding(b" chunked,"),
    "transfer-encoding xchunked": _encoding(b" xchunked"),
    "transfer-encoding chunkedx": _encoding(b" chunkedx"),
    "transfer-encoding quoted": _encoding(b' "chunked"'),
    "transfer-encoding behind a vertical tab": _encoding(b" \x0bchunked"),
    "transfer-encoding behind a no-break space": _encoding(b" \xa0chunked"),
    "transfer-encoding gzip, chunked": _encoding(b" gzip, chunked"),
    "transfer-encoding identity": _encoding(b" identity"),
    "transfer-encoding empty": _encoding(b""),
    "transfer-encoding twice": _encoding(b" chunked\r\nTransfer-Encoding: chunked"),
    "transfer-encoding twice, second identity": _encoding(b" chunked\r\nTransfer-Encoding: identity"),
    "transfer-encoding in HTTP/1.0": _encoding(b" chunked", version=b"1.0"),
}

HEADERS = {
    "request line ended by a bare LF": b"GET /bad HTTP/1.1\nHost: edge.test\r\n\r\n",
    "all lines ended by bare LFs": b"GET /bad HTTP/1.1\nHost: edge.test\n\n",
    "header ended by a bare LF": GET_HEAD + b"A: b\nC: d\r\n\r\n",
    "headers ended by a bare LF": GET_HEAD + b"A: b\r\n\n",
    "bare CR in a value": GET_HEAD + b"A: b\rc\r\n\r\n",
    "CR CR LF after a value": GET_HEAD + b"A: b\r\r\n\r\n",
    "bare CR before a name": GET_HEAD + b"\rA: b\r\n\r\n",
    "folded header": GET_HEAD + b"A: b\r\n c\r\n\r\n",
    "header folded with a tab": GET_HEAD + b"A: b\r\n\tc\r\n\r\n",
    "space before the first header": b"GET /bad HTTP/1.1\r\n Host: edge.test\r\n\r\n",
    "space before the colon": GET_HEAD + b"A : b\r\n\r\n",
    "tab before the colon": GET_HEAD + b"A\t: b\r\n\r\n",
    "space in a name": GET_HEAD + b"A B: c\r\n\r\n",
    "NUL in a name": GET_HEAD + b"A\0B: c\r\n\r\n",
    "NUL in a value": GET_HEAD + b"A: b\0c\r\n\r\n",
    "control character in a value": GET_HEAD + b"A: b\x01c\r\n\r\n",
    "DEL in a value": GET_HEAD + b"A: b\x7f\r\n\r\n",
    "non-ASCII name": GET_HEAD + b"\xc3\xa9: b\r\n\r\n",
    "no-break space in a name": GET_HEAD + b"A\xa0: b\r\n\r\n",
    "empty name": GET_HEAD + b": b\r\n\r\n",
    "no colon": GET_HEAD + b"Abc\r\n\r\n",
    "parentheses in a name": GET_HEAD + b"A(b): c\r\n\r\n",
    "two authorization headers": GET_HEAD + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two content-types": POST_HEAD + b"Content-Type: application/json\r\nContent-Type: text/plain\r\n\r\n",
    "connection header that names nothing, then a bad one": GET_HEAD + b"Connection:\r\nA : b\r\n\r\n",
}

HOSTS = {
    "no host": host_request(b"A: b"),
    "empty host": host_request(b"Host:"),
    "blank host": host_request(b"Host: \t"),
    "two hosts": host_request(b"Host: edge.test", b"Host: edge.test"),
    "host with a path": host_request(b"Host: edge.test/admin?"),
    "host with user info": host_request(b"Host: admin@edge.test"),
    "host with a bad port": host_request(b"Host: edge.test:80a"),
    "host with a space": host_request(b"Host: edge test"),
    "host list": host_request(b"Host: edge.test, other.test"),
    "absolute target of another host": host_request(b"Host: edge.test", target=b"http://other.test/bad"),
    "absolute target with user info": host_request(b"Host: edge.test", target=b"http://admin@edge.test/bad"),
    "absolute target of another scheme": host_request(b"Host: edge.test", target=b"ftp://edge.test/bad"),
}

REQUEST_LINES = {
    "fragment": host_request(b"Host: edge.test", target=b"/bad#part"),
    "asterisk that is not for OPTIONS": host_request(b"Host: edge.test", target=b"*"),
    "non-ASCII path": host_request(b"Host: edge.test", target=b"/b\xc3\xa4d"),
    "path that is not UTF-8": host_request(b"Host: edge.test", target=b"/b%e4d"),
    "encoded line break in the path": host_request(b"Host: edge.test", target=b"/bad%0d%0aX"),
    "encoded NUL in the path": host_request(b"Host: edge.test", target=b"/bad%00"),
    "tab in the target": host_request(b"Host: edge.test", target=b"/b\tad"),
    "relative target": host_request(b"Host: edge.test", target=b"bad"),
    "HTTP/0.9": b"GET /bad\r\n\r\n",
    "HTTP/1.2": b"GET /bad HTTP/1.2\r\nHost: edge.test\r\n\r\n",
    "HTTP/2.0": b"GET /bad HTTP/2.0\r\nHost: edge.test\r\n\r\n",
    "HTTP/1.10": b"GET /bad HTTP/1.10\r\nHost: edge.test\r\n\r\n",
    "lower-case protocol": b"GET /bad http/1.1\r\nHost: edge.test\r\n\r\n",
    "lower-case method": b"get /bad HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    "unknown method": b"FETCH /bad HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    "WebSocket upgrade": GET_HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "TLS client hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "random bytes": bytes(range(128, 256)),
}

BAD_CHUNKS = {
    "0x prefix": b"0x10\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "empty size": b"\r\nabcde\r\n0\r\n\r\n",
    "negative": b"-5\r\nabcde\r\n0\r\n\r\n",
    "plus sign": b"+5\r\nabcde\r\n0\r\n\r\n",
    "space before the size": b" 5\r\nabcde\r\n0\r\n\r\n",
    "space after the size": b"5 \r\nabcde\r\n0\r\n\r\n",
    "no-break space after the size": b"5\xa0\r\nabcde\r\n0\r\n\r\n",
    "longest valid prefix": b"5g\r\nabcde\r\n0\r\n\r\n",
    "17 digits": b"f" * 17 + b"\r\nabcde",
    "wrong terminator": b"5\r\nabcdeXX0\r\n\r\n",
    "terminator without CR": b"5\r\nabcde\n0\r\n\r\n",
    "terminator without LF": b"5\r\nabcde\r0\r\n\r\n",
    "size ended by a bare LF": b"5\nabcde\r\n0\r\n\r\n",
    "more data than the size": b"5\r\nabcdefgh\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nabcde\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\nabcde\r\n0\r\n\r\n",
    "NUL in an extension": b"5;\0\r\nabcde\r\n0\r\n\r\n",
    "last chunk ended by a bare LF": b"0\r\n\n",
    "content-length as a trailer": b"0\r\nContent-Length: 5\r\n\r\n",
    "bad trailer": b"0\r\nA : b\r\n\r\n",
}

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0" + bytes(18)
"""Beginning of a connection in HTTP/2 without an offer."""
