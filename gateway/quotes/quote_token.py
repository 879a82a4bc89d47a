"""QuoteSigner: quotes as opaque signed tokens, valid at every process that shares the store."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from contextlib import suppress
from typing import Final

import msgspec

from gateway.store.base import Store, StoreUnavailable
from gateway.timeline import Clock

SPACE: Final = "quotes"
_USED_SPACE: Final = "quotes.used"
KEY_NAME: Final = "signing_key"
_KEY_BYTES: Final = 32
MAX_TOKEN_BYTES: Final = 2048
_RETRY_S: Final = 5.0
"""Seconds until the store is read again for a key that it could not give."""


class QuoteToken(msgspec.Struct, frozen=True, array_like=True):
    """What a quote states, as its token carries it."""

    id: str
    holder: str
    """Name of the process that holds the permit."""
    tenant: str
    body_digest: bytes
    deployment: str
    expires_at: float
    """Instant in seconds since 1970."""
    forecast_s: float
    bound_s: float | None
    coverage: float
    price_nano: int | None
    """Bound of the price in billionths of the policy's currency; None where the quote states none."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(QuoteToken).decode


class QuoteSigner:
    """Signs and reads tokens with a key that all processes find in the store."""

    __slots__ = ("_clock", "_own_key", "_read_at", "_reading", "_shared_key", "_store")

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._own_key = secrets.token_bytes(_KEY_BYTES)
        """Key for as long as the store gives none; tokens are then valid at this process alone."""
        self._shared_key: bytes | None = None
        self._read_at = -_RETRY_S
        self._reading = asyncio.Lock()

    async def sign(self, token: QuoteToken) -> str:
        """Return the token as text that fits into a header."""
        payload = _encode(token)
        key = await self._key() or self._own_key
        return f"{_text(payload)}.{_text(_signature(key, payload))}"

    async def read(self, value: bytes) -> QuoteToken | None:
        """Return the token of a header; None for one that no process here has signed."""
        if len(value) > MAX_TOKEN_BYTES:
            return None
        payload, _, signature = value.strip().partition(b".")
        try:
            content, given = _bytes(payload), _bytes(signature)
        except (binascii.Error, ValueError):
            return None
        for key in (await self._key(), self._own_key):
            if key is not None and hmac.compare_digest(_signature(key, content), given):
                try:
                    return _decode(content)
                except msgspec.DecodeError:  # of another version
                    return None
        return None

    async def is_first_use(self, token: QuoteToken, left_s: float) -> bool:
        """Note that a token is sent back, `left_s` before its end; return False if another process noted that before.

        While the store cannot be used, each process counts the token once.
        """
        try:
            return await self._store.put(_USED_SPACE, token.id, b"", ttl_s=left_s, expect=0) is not None
        except StoreUnavailable:
            return True  # the store's own watch reports it

    async def _key(self) -> bytes | None:
        """Return the shared key, made by the first process that needs it; None while the store cannot be used."""
        if self._shared_key is None:
            async with self._reading:  # whoever comes meanwhile needs the key, too
                await self._read_key()
        return self._shared_key

    async def _read_key(self) -> None:
        """Read the key from the store, unless another request just did, or just failed to."""
        now = self._clock()
        if self._shared_key is None and now - self._read_at >= _RETRY_S:
            with suppress(StoreUnavailable):  # the store's own watch reports it
                self._shared_key = await self._fetched()
            self._read_at = now

    async def _fetched(self) -> bytes | None:
        entry = await self._store.get(SPACE, KEY_NAME)
        if entry is None:
            await self._store.put(SPACE, KEY_NAME, self._own_key, expect=0)
            entry = await self._store.get(SPACE, KEY_NAME)
        return None if entry is None else entry.value


def _signature(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, b"penstock-quote\0" + payload, "sha256")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _bytes(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
