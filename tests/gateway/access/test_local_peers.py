"""Requests of this machine: distinguished from those of proxies, other hosts and foreign pages."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.access.local_peers import LocalPeers

LOOPBACK = ("127.0.0.1", 5000)


def scope(client: tuple[str, int] | None = LOOPBACK, **headers: Any) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": client, "headers": pairs}


TCP = LocalPeers(is_socket=False, allows_remote=False, own_hosts=[b"Admin.Example:8443", b""])
SOCKET = LocalPeers(is_socket=True, allows_remote=False)
OPEN = LocalPeers(is_socket=False, allows_remote=True)


@pytest.mark.parametrize(
    ("client", "host", "is_local"),
    [
        (LOOPBACK, "localhost:9000", True),
        (("::1", 5000), "[::1]:9000", True),
        (LOOPBACK, "LOCALHOST", True),
        (LOOPBACK, "evil.example", False),
        (LOOPBACK, "localhost.evil.example", False),
        (LOOPBACK, "127.0.0.1:9000/x", False),
        (("10.0.0.5", 5000), "localhost", False),
        (None, "localhost", False),
    ],
)
def test_a_local_request_comes_from_here_and_names_this_machine(
    client: tuple[str, int] | None, host: str, is_local: bool
) -> None:
    assert TCP.is_local(scope(client, host=host)) is is_local


def test_a_request_without_a_host_is_not_local() -> None:
    assert not TCP.is_local(scope())


@pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "via", "x_real_ip", "cf_connecting_ip"])
def test_what_a_proxy_forwarded_is_not_local_even_over_a_socket(header: str) -> None:
    forwarded: dict[str, Any] = {header: "10.0.0.5"}
    assert not TCP.is_local(scope(host="localhost", **forwarded))
    assert not SOCKET.is_local(scope(None, **forwarded))
    assert SOCKET.is_local(scope(None))


def test_where_other_machines_are_served_nobody_is_local() -> None:
    assert not OPEN.is_local(scope(host="localhost"))
    assert OPEN.is_own_host(b"anything.example")


def test_the_listeners_own_names_ignore_case() -> None:
    assert TCP.is_own_host(b"admin.example:8443")
    assert TCP.is_own_host(None)
    assert not TCP.is_own_host(b"admin.example")
    assert SOCKET.is_own_host(b"whatever")


def test_an_origin_is_own_when_it_names_the_host_that_was_called() -> None:
    assert TCP.is_own_origin(b"http://LocalHost:9000", b"localhost:9000")
    assert TCP.is_own_origin(b"https://admin.example:8443", b"localhost:9000")
    assert not TCP.is_own_origin(b"http://evil.example", b"localhost:9000")
    assert not TCP.is_own_origin(b"null", b"null")
    assert not TCP.is_own_origin(b"http://", None)
