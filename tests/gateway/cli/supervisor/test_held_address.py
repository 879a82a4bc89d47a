"""Listening sockets that a supervisor holds."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.cli.supervisor.held_address import AddressError, hold_address
from gateway.config.addresses import is_loopback
from gateway.config.sources import config_of
from gateway.http.address import bind, inherited_addresses
from gateway.http.limits import EdgeLimits


def test_a_port_in_use_is_an_error_that_names_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressError, match=f"{address} is already in use; .* choose --port N"):
            hold_address(address, "--port")


@pytest.mark.parametrize("address", ["192.0.2.1:80", "no.such.host.invalid:80", "unix:/no/such/folder/x.sock"])
def test_an_address_that_cannot_be_had_is_an_error(address: str) -> None:
    with pytest.raises(AddressError, match=f"cannot listen on {address}: .*; choose another address"):
        hold_address(address, "--port")


def test_connections_wait_from_the_moment_the_address_is_held_until_it_is_let_go() -> None:
    held = hold_address("127.0.0.1:0", "--port")
    host, _, port = held.shown.rpartition(":")
    with socket.create_connection((host, int(port)), 1) as client:
        client.sendall(b"hello")
        accepted, _ = held.sockets[0].accept()
        assert accepted.recv(5) == b"hello"
        accepted.close()
    held.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 1)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix"])
async def test_what_is_held_can_be_served_by_one_process_after_the_other(tmp_path: Path, address: str) -> None:
    if address == "unix":
        address = f"unix:{tmp_path}/a b.sock"
    try:
        held = hold_address(address, "--port")
    except AddressError as error:
        pytest.skip(str(error))  # a machine without IPv6
    for _ in range(2):
        served = await bind(held.inherited, reuse_port=False, limits=EdgeLimits())
        assert len(served) == len(held.sockets)
        for each in served:
            each.close()
    assert inherited_addresses(held.inherited)[0].rpartition(":")[2] == held.shown.rpartition(":")[2]
    assert is_loopback(held.inherited)
    config = config_of({"admin.listen": held.inherited})
    assert config.admin.is_socket == address.startswith("unix:")
    assert config.inherited_descriptors == held.descriptors
    held.close()


def test_sockets_given_to_the_supervisor_itself_are_held_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        held = hold_address(f"fd:{given.fileno()}", "--port")
        assert held.shown == f"127.0.0.1:{given.getsockname()[1]}"
        held.close()
        assert given.fileno() >= 0


def test_held_sockets_are_not_inherited_by_programs_that_are_not_reported_of_them() -> None:
    held = hold_address("127.0.0.1:0", "--port")
    assert not any(map(os.get_inheritable, held.descriptors))
    held.close()


def test_several_may_share_a_port_when_they_report_it() -> None:
    first = hold_address("127.0.0.1:0", "--port", is_shared=True)
    second = hold_address(first.shown, "--port", is_shared=True)
    assert second.shown == first.shown
    with pytest.raises(AddressError, match="already in use"):
        hold_address(first.shown, "--port")
    for held in (first, second):
        held.close()
