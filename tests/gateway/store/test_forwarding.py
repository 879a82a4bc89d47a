"""Forwarding: every operation of a Store reaches the subclass by its name, with its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.base import MAX_VALUE_BYTES
from gateway.store.forwarding import ForwardingStore, OuterStore


class Notifications(ForwardingStore):
    """Returns what it was given."""

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        return operation, arguments, options


async def test_operations_carry_their_names_and_arguments() -> None:
    store = Notifications()
    notified: list[Any] = [
        await store.get("s", "k"),
        await store.put("s", "k", b"v", ttl_s=1.0),
        await store.delete("s", "k", expect=3),
        await store.keys("s", after="k"),
        await store.changes("s", after=2, limit=5),
        await store.append("s", "log", b"v"),
        await store.read_log("s", "log", after=1),
        await store.exchange("s", "holder", ()),
        await store.room(),
    ]
    assert notified == [
        ("get", ("s", "k"), {}),
        ("put", ("s", "k", b"v"), {"ttl_s": 1.0, "expect": None}),
        ("delete", ("s", "k"), {"expect": 3}),
        ("keys", ("s",), {"after": "k", "limit": 1000}),
        ("changes", ("s",), {"after": 2, "limit": 5}),
        ("append", ("s", "log", b"v"), {"after": None}),
        ("read_log", ("s", "log"), {"after": 1, "limit": 1000}),
        ("exchange", ("s", "holder", (), None), {"number": 0}),
        ("room", (), {}),
    ]
    await store.ping()


async def test_keys_and_values_that_no_store_takes_are_not_forwarded() -> None:
    with pytest.raises(ValueError, match="key"):
        await Notifications().put("s", "", b"v")
    with pytest.raises(ValueError, match="value"):
        await Notifications().put("s", "k", b"v" * (MAX_VALUE_BYTES + 1))
    with pytest.raises(ValueError, match="value"):
        await Notifications().append("s", "log", b"v" * (MAX_VALUE_BYTES + 1))


class Divided(Notifications):
    """Stands for two servers, and notes its end."""

    is_closed = False

    def nodes(self) -> tuple[str, ...]:
        return ("a", "b")

    def node_of(self, space: str) -> str:
        return "b"

    async def aclose(self) -> None:
        self.is_closed = True


async def test_a_store_around_another_has_its_servers_its_operations_and_its_end() -> None:
    inner = Divided()
    store = OuterStore(inner)
    assert (store.nodes(), store.node_of("s")) == (("a", "b"), "b")
    forwarded: Any = await store.keys("s")
    assert forwarded == ("keys", ("s",), {"after": "", "limit": 1000})
    await store.aclose()
    assert inner.is_closed
