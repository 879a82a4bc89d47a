"""StoreList: members by a list in the shared store, which admins or a registrar write through the admin API."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gateway.discovery.source import Listing, Pause, SourceError, poll, usable
from gateway.store.base import Store, StoreUnavailable
from routing_policies.policy.members import Address

SPACE: Final = "members"
LOOK_S: Final = 1.0
MAX_MEMBERS: Final = 1_024

MemberAddress = Annotated[str, Meta(max_length=300)]


class MemberList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list as it is stored."""

    members: Annotated[tuple[MemberAddress, ...], Meta(max_length=MAX_MEMBERS)]
    """Addresses `host:port`, with brackets around an IPv6 address."""

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses; raises SourceError for a malformed one."""
        return usable([_parsed(text) for text in self.members])


def _parsed(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise SourceError(f"{text[:100]!r} is no host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise SourceError(f"{text[:100]!r} needs brackets around the IPv6 address")
    return Address(host.strip("[]").lower(), int(port))


class StoreList:
    """Members of one list; a list that is gone keeps its members, because a store may have lost it."""

    def __init__(self, name: str, store: Store, *, pause: Pause = asyncio.sleep) -> None:
        self._name = name
        self._store = store
        self._pause = pause

    async def follow(self, listing: Listing) -> None:
        """Read the list for ever; ends by cancellation."""

        async def once() -> float:
            listing.take(await self._look())
            return LOOK_S

        await poll(once, listing, self._pause)

    async def _look(self) -> tuple[Address, ...]:
        try:
            entry = await self._store.get(SPACE, self._name)
        except StoreUnavailable as error:
            raise SourceError(f"the store cannot be read: {error.reason}") from error
        if entry is None:
            raise SourceError(f'the store has no list "{self._name}"; PUT /admin/api/members/{self._name} writes it')
        try:
            return msgspec.json.decode(entry.value, type=MemberList).addresses()
        except msgspec.DecodeError as error:
            raise SourceError(f'list "{self._name}": {error}') from error
