"""Addresses of listeners: what is wrong with one, and who reaches it."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address

from gateway.http.address import inherited_addresses
from routing_policies.policy.references import MAX_UNIX_PATH_BYTES


def is_loopback(address: str) -> bool:
    """Return whether a listener's address can be reached from this machine only."""
    if address.startswith("unix:"):
        return True
    if address.startswith("fd:"):
        return all(map(is_loopback, inherited_addresses(address)))
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name: where it leads is not known here
        return False


def is_socket(address: str) -> bool:
    """Return whether clients come through a Unix socket, which only this machine's users reach."""
    if address.startswith("fd:"):
        return all(found.startswith("unix:") for found in inherited_addresses(address))
    return address.startswith("unix:")


def address_problem(address: str) -> str | None:
    """Return what is wrong with a listener's address, None when it can be bound."""
    if address.startswith("unix:"):
        return socket_problem(address.removeprefix("unix:"))
    if address.startswith("fd:"):
        return _inheritance_problem(address)
    host, separator, port = address.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return f'expected host:port, [v6]:port or unix:/path, got "{address}"'
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f'an IPv6 address goes in brackets: "[{host}]:{port}"'
    return None


def socket_problem(path: str) -> str | None:
    """Return what is wrong with the path of a Unix socket, None when it can be bound."""
    if not path or "\0" in path:
        return "unix: needs a path, such as unix:/run/penstock/public.sock"
    excess = len(os.fsencode(path)) - MAX_UNIX_PATH_BYTES
    if excess > 0:
        return f"the socket's path is {excess} bytes over the system's {MAX_UNIX_PATH_BYTES}; use a shorter directory"
    return None


def _inheritance_problem(address: str) -> str | None:
    if not re.fullmatch(r"fd:[0-9]{1,6}(,[0-9]{1,6})*", address, re.ASCII):
        return f'expected fd:N with the number of an inherited socket, got "{address}"'
    try:
        inherited_addresses(address)
    except OSError as error:
        return f"{address} is no socket that this process inherited ({error.strerror})"
    return None
