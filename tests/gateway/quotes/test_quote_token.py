"""Tokens of quotes: valid wherever the store is shared, and nowhere after a change."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.quotes.quote_token import MAX_TOKEN_BYTES, QuoteSigner, QuoteToken
from gateway.store.base import StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore
from gateway.store.forwarding import ForwardingStore

TOKEN = QuoteToken(
    id="quote_1",
    holder="1-a",
    tenant="shop",
    body_digest=b"\0" * 32,
    deployment="small",
    expires_at=1_800_000_000.0,
    forecast_s=0.1,
    bound_s=0.25,
    coverage=0.95,
    price_nano=1200,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def embedded(path: Path) -> EmbeddedStore:
    return EmbeddedStore(path, wall=time.time)


class DownStore(ForwardingStore):
    """A store that cannot be reached until `inner` is set."""

    def __init__(self) -> None:
        self.inner: Any = None

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if self.inner is None:
            raise StoreUnavailable(StoreLoss.DOWN, "down", was_sent=False)
        return await getattr(self.inner, operation)(*arguments, **options)

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_a_token_is_read_by_every_process_that_shares_the_store(tmp_path: Path) -> None:
    store = embedded(tmp_path / "store.db")
    try:
        first, second = QuoteSigner(store, Clock()), QuoteSigner(store, Clock())
        value = await first.sign(TOKEN)
        assert await second.read(value.encode()) == TOKEN
        assert await first.read((await second.sign(TOKEN)).encode()) == TOKEN
        assert value.isascii()
        assert len(value) < MAX_TOKEN_BYTES
    finally:
        await store.aclose()


class SlowStore(ForwardingStore):
    """A store whose answers come a moment later."""

    def __init__(self, inner: EmbeddedStore) -> None:
        self.inner = inner
        self.num_reads = 0

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        self.num_reads += operation == "get"
        await asyncio.sleep(0)
        return await getattr(self.inner, operation)(*arguments, **options)

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_requests_that_come_while_a_process_reads_the_key_wait_for_it(tmp_path: Path) -> None:
    store = embedded(tmp_path / "store.db")
    try:
        value = (await QuoteSigner(store, Clock()).sign(TOKEN)).encode()
        slow = SlowStore(store)
        fresh = QuoteSigner(slow, Clock())
        assert await asyncio.gather(*(fresh.read(value) for _ in range(8))) == [TOKEN] * 8
        assert slow.num_reads == 1
    finally:
        await store.aclose()


async def test_a_token_that_was_changed_or_made_elsewhere_is_not_read(tmp_path: Path) -> None:
    stores = [embedded(tmp_path / "one.db"), embedded(tmp_path / "two.db")]
    try:
        signer, stranger = (QuoteSigner(store, Clock()) for store in stores)
        value = (await signer.sign(TOKEN)).encode()
        payload, _, signature = value.partition(b".")
        other = (await stranger.sign(msgspec.structs.replace(TOKEN, tenant="other"))).encode()
        for wrong in (
            other,
            payload,
            payload + b".",
            b"." + signature,
            payload[:-4] + b"AAAA." + signature,
            b"",
            b"\xff.",
        ):
            assert await signer.read(wrong) is None
        assert await signer.read(b"a" * (MAX_TOKEN_BYTES + 1)) is None
        assert await signer.read(value) == TOKEN
    finally:
        for store in stores:
            await store.aclose()


async def test_without_the_store_a_token_is_valid_where_it_was_made(tmp_path: Path) -> None:
    clock, down = Clock(), DownStore()
    alone, other = QuoteSigner(down, clock), QuoteSigner(down, clock)
    value = (await alone.sign(TOKEN)).encode()
    assert await alone.read(value) == TOKEN
    assert await other.read(value) is None
    down.inner = embedded(tmp_path / "store.db")
    try:
        clock.now = 10.0  # the store is read again
        assert await alone.read(value) == TOKEN
        assert await other.read((await alone.sign(TOKEN)).encode()) == TOKEN
    finally:
        await down.inner.aclose()


@pytest.mark.parametrize("content", [b"", b"\x01", msgspec.msgpack.encode(["too", "short"])])
async def test_a_token_of_another_version_is_not_read(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = embedded(tmp_path / "store.db")
    try:
        signer = QuoteSigner(store, Clock())
        monkeypatch.setattr("gateway.quotes.quote_token._encode", lambda token: content)
        assert await signer.read((await signer.sign(TOKEN)).encode()) is None
    finally:
        await store.aclose()


async def test_a_token_is_used_once_among_all_processes_and_once_in_each_without_the_store(tmp_path: Path) -> None:
    store, down = embedded(tmp_path / "store.db"), DownStore()
    try:
        one, other, lost = QuoteSigner(store, Clock()), QuoteSigner(store, Clock()), QuoteSigner(down, Clock())
        assert await one.is_first_use(TOKEN, 5.0)
        assert not await other.is_first_use(TOKEN, 5.0)
        assert await other.is_first_use(msgspec.structs.replace(TOKEN, id="quote_2"), 5.0)
        assert await lost.is_first_use(TOKEN, 5.0)
    finally:
        await store.aclose()
