"""Addresses to listen on: sockets of the parent, Unix sockets, IPv6, and what makes no sense."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.http import address
from gateway.http.address import bind, describe, inherited_addresses
from gateway.http.limits import ConnectionLimits, EdgeLimits
from tests.gateway.http.conftest import StartEdge, get


async def test_a_socket_of_the_parent_is_served_and_outlives_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as parents:
        address = f"fd:{parents.fileno()}"
        (listening,) = await bind(
            address, reuse_port=False, limits=EdgeLimits(connections=ConnectionLimits(write_stall_timeout_s=3.0))
        )
        assert describe(listening) == inherited_addresses(address)[0] == describe(parents)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3000
        listening.close()
        socket.create_connection(parents.getsockname(), 1).close()  # its queue still takes connections


def test_a_number_that_is_no_socket_is_an_error() -> None:
    with open("/dev/null") as file, pytest.raises(OSError, match="socket"):
        inherited_addresses(f"fd:{file.fileno()}")


async def test_a_unix_socket_is_served_and_a_stale_one_replaced(start_edge: StartEdge, tmp_path: Path) -> None:
    path = tmp_path / "edge.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    edge = await start_edge(address=f"unix:{path}", connections__max_per_ip=1)
    assert edge.address() == f"unix:{path}"
    assert os.stat(path).st_mode & 0o777 == 0o600
    async with edge.connect() as first, edge.connect() as second:
        assert (await first.call(get())).status == 200
        assert (await second.call(get())).status == 200


async def test_a_unix_socket_that_is_in_use_is_not_taken(start_edge: StartEdge, tmp_path: Path) -> None:
    edge = await start_edge(address=f"unix:{tmp_path}/edge.sock")
    with pytest.raises(OSError, match="in use"):
        await start_edge(address=f"unix:{tmp_path}/edge.sock")
    assert await edge.is_serving()


async def test_a_file_that_is_no_socket_is_not_deleted(start_edge: StartEdge, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(FileExistsError, match="not a socket"):
        await start_edge(address=f"unix:{path}")
    assert path.read_text() == "data"


@pytest.mark.parametrize("text", ["8080", "localhost", "localhost:http", "host:99999", ""])
async def test_an_address_that_makes_no_sense_is_an_error_that_reports_it(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        await address.bind(text, reuse_port=False, limits=EdgeLimits())


async def test_ipv6_is_bound_in_brackets() -> None:
    sockets = await address.bind("[::1]:0", reuse_port=True, limits=EdgeLimits())
    assert address.describe(sockets[0]).startswith("[::1]:")
    for each in sockets:
        each.close()
