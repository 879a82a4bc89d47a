"""Offers of another protocol: WebSocket is refused, others are taken out."""

from __future__ import annotations

from gateway.http.upgrade import head_without_upgrade, is_websocket


def test_only_websocket_cannot_be_declined() -> None:
    assert is_websocket([(b"host", b"a"), (b"upgrade", b"WebSocket")])
    assert not is_websocket([(b"upgrade", b"h2c")])
    assert not is_websocket([(b"x-note", b"websocket")])


def test_the_offer_goes_and_the_rest_stays() -> None:
    headers = [
        (b"host", b"a"),
        (b"connection", b"keep-alive,  Upgrade , HTTP2-Settings"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AAM"),
    ]
    expected = b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\n\r\n"
    assert head_without_upgrade(b"GET", b"/x", headers) == expected


def test_a_connection_header_of_nothing_else_goes_with_it() -> None:
    headers = [(b"host", b"a"), (b"connection", b"upgrade")]
    assert b"connection" not in head_without_upgrade(b"GET", b"/", headers)
