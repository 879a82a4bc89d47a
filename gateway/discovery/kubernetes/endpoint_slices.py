"""EndpointSliceTable: the slices of one Service, and the members that they list. Pure.

Kubernetes splits a Service's endpoints into slices, which change one by one. An endpoint is a member while it is ready;
`ready` is false for a pod that terminates. A pod of a dual-stack Service is listed once for each address family.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.discovery.source import SourceError
from routing_policies.policy.members import Address

_PROTOCOL: Final = "TCP"


class SliceConditions(msgspec.Struct, frozen=True):
    """Conditions of one endpoint; None means unknown, which counts as ready."""

    ready: bool | None = None


class TargetRef(msgspec.Struct, frozen=True):
    """Object behind an endpoint, which is a pod in most cases."""

    uid: str = ""


class SliceEndpoint(msgspec.Struct, frozen=True):
    """One endpoint; its addresses are interchangeable, and consumers use the first."""

    addresses: tuple[str, ...] = ()
    conditions: SliceConditions = SliceConditions()
    target: TargetRef | None = msgspec.field(name="targetRef", default=None)

    @property
    def is_ready(self) -> bool:
        """Return whether it takes requests."""
        return self.conditions.ready is not False and bool(self.addresses)


class SlicePort(msgspec.Struct, frozen=True):
    """One port of a slice; a Service with a single port may leave it without a name."""

    port: int | None = None
    name: str | None = None
    protocol: str | None = None


class ObjectMeta(msgspec.Struct, frozen=True):
    """Name and version of an object, of a list, or of a bookmark."""

    name: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class EndpointSlice(msgspec.Struct, frozen=True):
    """The part of an EndpointSlice (discovery.k8s.io/v1) that members depend on."""

    metadata: ObjectMeta
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None


class EndpointSliceTable:
    """Slices by name."""

    def __init__(self, port: int | str | None) -> None:
        """Create an empty table; `port` is the members' port, its name in the Service, or None for the only one."""
        self._port = port
        self._slices: dict[str, EndpointSlice] = {}

    def replace(self, slices: tuple[EndpointSlice, ...]) -> None:
        """Adopt a complete list."""
        self._slices = {one.metadata.name: one for one in slices}

    def put(self, changed: EndpointSlice) -> None:
        """Add a slice, or adopt its change."""
        self._slices[changed.metadata.name] = changed

    def remove(self, name: str) -> None:
        """Remove a deleted slice."""
        self._slices.pop(name, None)

    def members(self) -> list[Address]:
        """Return the ready endpoints of all slices, one address for each pod, IPv4 before IPv6.

        Raises:
            SourceError: The port is not clear.
        """
        found: dict[str, Address] = {}
        for one in self._slices.values():
            ready = [endpoint for endpoint in one.endpoints or () if endpoint.is_ready]
            if ready:
                port = self._port_of(one)
                for endpoint in ready:
                    address = Address(endpoint.addresses[0].lower(), port)
                    owner = (endpoint.target and endpoint.target.uid) or str(address)
                    if owner not in found or ":" in found[owner].host:
                        found[owner] = address
        return list(found.values())

    def _port_of(self, one: EndpointSlice) -> int:
        if isinstance(self._port, int):
            return self._port
        ports = [each for each in one.ports or () if (each.protocol or _PROTOCOL) == _PROTOCOL and each.port]
        fitting = [each for each in ports if self._port is None or each.name == self._port]
        if len(fitting) != 1 or fitting[0].port is None:
            names = ", ".join(sorted(each.name or str(each.port) for each in ports)) or "none"
            wanted = "port or port_name is needed" if self._port is None else f'no port named "{self._port}"'
            raise SourceError(f"{wanted}; the Service has: {names}")
        return fitting[0].port
