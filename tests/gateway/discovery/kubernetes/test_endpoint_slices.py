"""Which endpoints of which slices are members."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.discovery.kubernetes.endpoint_slices import EndpointSlice, EndpointSliceTable
from gateway.discovery.source import SourceError
from routing_policies.policy.members import Address
from tests.gateway.discovery.kubernetes.scripted_api import endpoint_slice


def table(port: int | str | None, *slices: dict[str, Any]) -> EndpointSliceTable:
    made = EndpointSliceTable(port)
    made.replace(tuple(msgspec.convert(one, EndpointSlice) for one in slices))
    return made


def test_ready_endpoints_of_all_slices_are_members() -> None:
    made = table(
        "http", endpoint_slice("a", 1, "10.0.0.1", not_ready=("10.0.0.2",)), endpoint_slice("b", 1, "10.0.0.3")
    )
    assert made.members() == [Address("10.0.0.1", 8000), Address("10.0.0.3", 8000)]


def test_an_unknown_condition_counts_as_ready_and_an_empty_slice_as_nothing() -> None:
    unknown = {"metadata": {"name": "a"}, "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}], "ports": None}
    empty = {"metadata": {"name": "b"}, "endpoints": None, "ports": None}
    assert table(8000, unknown, empty).members() == [Address("10.0.0.1", 8000)]


@pytest.mark.parametrize(
    ("port", "ports", "expected"),
    [
        (None, [{"name": "", "port": 8000}], 8000),
        ("http", [{"name": "http", "port": 8001}, {"name": "metrics", "port": 9}], 8001),
        (7000, [{"name": "http", "port": 8001}], 7000),
        (None, [{"name": "http", "port": 8001, "protocol": "TCP"}, {"name": "q", "port": 1, "protocol": "UDP"}], 8001),
    ],
)
def test_the_port_is_the_only_one_or_the_one_named(port: Any, ports: Any, expected: int) -> None:
    assert table(port, endpoint_slice("a", 1, "10.0.0.1", ports=ports)).members() == [Address("10.0.0.1", expected)]


@pytest.mark.parametrize(
    ("port", "ports"), [("http", []), ("http", [{"name": "web", "port": 1}]), (None, [{"port": None}])]
)
def test_a_port_that_is_not_there_is_a_failure(port: Any, ports: Any) -> None:
    with pytest.raises(SourceError):
        table(port, endpoint_slice("a", 1, "10.0.0.1", ports=ports)).members()


def test_slices_come_and_go() -> None:
    made = table("http", endpoint_slice("a", 1, "10.0.0.1"))
    made.put(msgspec.convert(endpoint_slice("b", 2, "10.0.0.2"), EndpointSlice))
    made.remove("a")
    made.remove("never there")
    assert made.members() == [Address("10.0.0.2", 8000)]


def test_a_pod_with_addresses_of_both_families_is_one_member() -> None:
    def family(name: str, *addresses: str) -> dict[str, Any]:
        found = endpoint_slice(name, 1, *addresses)
        for number, endpoint in enumerate(found["endpoints"]):
            endpoint["targetRef"] = {"kind": "Pod", "name": f"p{number}", "uid": f"u{number}"}
        return found

    made = table("http", family("v6", "fd00::1", "fd00::2", "fd00::3"), family("v4", "10.0.0.1", "10.0.0.2"))
    expected = {Address("10.0.0.1", 8000), Address("10.0.0.2", 8000), Address("fd00::3", 8000)}
    assert (set(made.members()), len(made.members())) == (expected, 3)
