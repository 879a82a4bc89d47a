"""The front's directory: what a core starts with, and what changed since."""

from __future__ import annotations

import asyncio

import pytest

from engine.frontend.core_client.adapters import AdapterDirectory
from engine.frontend.request.errors import ApiError, overloaded_error
from engine.protocol import AdapterReport, LoadAdapter, UnloadAdapter


class Directory:
    """A directory, and the orders that it sent."""

    def __init__(self) -> None:
        self.sent: list[LoadAdapter | UnloadAdapter] = []
        self.directory = AdapterDirectory(self.sent.append)


async def _unload(one: Directory, name: str) -> None:
    unloading = asyncio.create_task(one.directory.unload(name, 1.0))
    await asyncio.sleep(0)
    one.directory.reported(AdapterReport(name=name, change="unloaded"))
    await unloading


async def test_an_adapter_of_the_start_that_was_unloaded_stays_so_in_the_next_core() -> None:
    one = Directory()
    one.directory.core_ready({"law": "1a", "tax": "2b"})
    assert one.directory.names == ["law", "tax"]
    assert one.directory.digest_of("tax") == "2b"
    await _unload(one, "law")
    one.sent.clear()

    one.directory.core_lost()
    one.directory.core_ready({"law": "1a", "tax": "2b"})

    assert one.directory.names == ["tax"]
    assert one.sent == [UnloadAdapter(name="law", deadline_s=0.0)]
    with pytest.raises(ApiError) as caught:
        one.directory.check("law", "tiny:law")
    assert caught.value.status == 404


async def test_an_adapter_that_the_next_core_refuses_is_gone() -> None:
    one = Directory()
    one.directory.core_ready({})
    loading = asyncio.create_task(one.directory.load("law", "/adapters/law"))
    await asyncio.sleep(0)
    one.directory.reported(AdapterReport(name="law", change="loaded", digest="1a"))
    await loading
    assert one.directory.digest_of("law") == "1a"
    one.directory.core_lost()
    one.directory.core_ready({})
    assert one.sent[-1] == LoadAdapter(name="law", path="/adapters/law")
    one.directory.reported(AdapterReport(name="law", change="refused", error="no such file"))
    assert one.directory.digest_of("law") == ""
    one.sent.clear()
    one.directory.core_lost()
    one.directory.core_ready({})
    assert one.sent == []


async def test_without_a_core_nothing_changes() -> None:
    def refuse(order: LoadAdapter | UnloadAdapter) -> None:
        raise overloaded_error("not ready", reason="overload")

    directory = AdapterDirectory(refuse)
    with pytest.raises(ApiError):
        await directory.load("law", "/adapters/law")
    with pytest.raises(ApiError) as caught:
        await directory.load("law", "/adapters/law")
    assert caught.value.status == 503  # the name is not taken
