"""ResponseStore: responses that are kept for later requests of the same tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.chat.chunked_json import encoded_in_parts
from gateway.chat.strict_json import LONG_BYTES
from gateway.dialects.responses.request import Items
from gateway.dialects.responses.response_frame import response_of_item
from gateway.errors import InvalidRequest, Shed, ShedReason
from gateway.store.base import MAX_KEY_BYTES, MAX_VALUE_BYTES, Store, StoreUnavailable

_SPACE: Final = "responses."
_PREVIOUS: Final = "previous_response_id"
_ITEM_KINDS: Final = {
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}
"""Beginnings of the ids of input items, by type; all others begin as messages do."""


class StoredResponse(msgspec.Struct, frozen=True, gc=False):
    """A response with the items that it answers."""

    response: dict[str, Any]
    input: list[Any]

    @property
    def conversation(self) -> list[Any]:
        """Return the items that a request which continues the response begins with."""
        return [*self.input, *self.response["output"]]


_decode: Final = msgspec.json.Decoder(StoredResponse).decode


class ResponseStore:
    """Responses by tenant and id, in the store that gateways share; each expires by itself."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, tenant: str, stored: StoredResponse, *, ttl_s: float) -> bool:
        """Store a response; return False when the store has not taken it."""
        members = {"response": stored.response, "input": _with_ids(stored)}
        value = await asyncio.to_thread(encoded_in_parts, members)
        if len(value) > MAX_VALUE_BYTES:
            return False
        try:
            await self._store.put(_SPACE + tenant, stored.response["id"], value, ttl_s=ttl_s)
        except StoreUnavailable:  # the store's watch has reported it
            return False
        return True

    async def read(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None when the tenant has none of that id.

        Raises:
            Shed: The store cannot be read.
        """
        if not 0 < len(response_id.encode()) <= MAX_KEY_BYTES or "\0" in response_id:
            return None
        try:
            entry = await self._store.get(_SPACE + tenant, response_id)
        except StoreUnavailable:
            raise _unreadable() from None
        if entry is None:
            return None
        return await asyncio.to_thread(_decode, entry.value) if len(entry.value) > LONG_BYTES else _decode(entry.value)

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response; return whether the tenant had it.

        Raises:
            Shed: The store cannot be reached.
        """
        if not 0 < len(response_id.encode()) <= MAX_KEY_BYTES or "\0" in response_id:
            return False
        try:
            return await self._store.delete(_SPACE + tenant, response_id)
        except StoreUnavailable:
            raise _unreadable() from None

    async def recall(self, tenant: str, names: Mapping[str, str]) -> dict[str, Items]:
        """Return the items behind the ids in a request, by id: a conversation, or one item.

        Args:
            tenant: Owner of the responses.
            names: Ids by the path of the field that holds them.

        Raises:
            InvalidRequest: The tenant has no such response.
            Shed: The store cannot be read.
        """
        found: dict[str, Items] = {}
        read: dict[str, StoredResponse | None] = {}
        for path, name in names.items():
            response_id = name if path == _PREVIOUS else response_of_item(name)
            if response_id is not None and response_id not in read:
                read[response_id] = await self.read(tenant, response_id)
            stored = read.get(response_id or "")
            items = None if stored is None else _referred(stored, path, name)
            if not items:
                raise _not_found(path, name)
            found[name] = items
        return found


def _referred(stored: StoredResponse, path: str, name: str) -> Items:
    """Return the conversation behind a response's id, or the item behind an item's id."""
    if path == _PREVIOUS:
        return stored.conversation
    return [item for item in stored.conversation if item.get("id") == name][-1:]


def _with_ids(stored: StoredResponse) -> list[Any]:
    """Return the input items, each with a type and an id by which clients may refer to it."""
    token = stored.response["id"].partition("_")[2]
    found = []
    for number, item in enumerate(stored.input):
        kind = item.get("type") or "message"
        item_id = item.get("id") or f"{_ITEM_KINDS.get(kind, 'msg')}_{token}{0x8000 + number:04x}"
        found.append({**item, "type": kind, "id": item_id})
    return found


def _not_found(path: str, name: str) -> InvalidRequest:
    what = "response" if path == _PREVIOUS else "item"
    return InvalidRequest(
        f"`{path}`: there is no {what} '{name[:100]}'; it may have expired. Send the whole conversation in `input`.",
        param=path,
        code="previous_response_not_found" if path == _PREVIOUS else "invalid_value",
    )


def _unreadable() -> Shed:
    return Shed(
        ShedReason.OVERLOAD,
        lane="",
        message="The store of responses cannot be read now. Try again.",
        hint="Send the whole conversation in `input`.",
    )
