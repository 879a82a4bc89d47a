"""MemberSource: where members are listed; and what every source does alike after a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from gateway.util.doubling_pauses import DoublingPauses
from routing_policies.policy.members import Address
from routing_policies.policy.references import url_problem

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0

Pause = Callable[[float], Awaitable[None]]
"""Wait for seconds; `asyncio.sleep` outside tests."""


class SourceError(Exception):
    """A source could not be read; the message is shown on the admin page and holds no secret."""


class Listing(Protocol):
    """Receiver of what a source finds."""

    def take(self, members: Sequence[Address]) -> None:
        """Adopt a complete listing; an empty one means that there are no members."""
        ...

    def fail(self, reason: str) -> None:
        """Note that the source cannot be read; the last members stay."""
        ...


class MemberSource(Protocol):
    """One place where members are listed."""

    async def follow(self, listing: Listing) -> None:
        """Report listings and failures until cancelled."""
        ...


def pauses() -> DoublingPauses:
    """Return the pauses after failures of a source."""
    return DoublingPauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)


async def poll(look: Callable[[], Awaitable[float]], listing: Listing, pause: Pause) -> None:
    """Look for ever; `look` returns the seconds until the next look, and a SourceError is reported and retried."""
    backoff = pauses()
    while True:
        try:
            wait_s = await look()
            backoff.reset()
        except SourceError as error:
            listing.fail(str(error))
            wait_s = backoff.failed()
        await pause(wait_s)


def usable(members: Sequence[Address]) -> tuple[Address, ...]:
    """Return the members in a stable order, each once; raises SourceError for an address that no URL can hold."""
    for address in members:
        if not _is_usable(address):
            raise SourceError(f"{str(address)[:100]!r} is no host and port")
    return _in_order(members)


def take_usable(listing: Listing, members: Sequence[Address]) -> None:
    """Report the members that a URL can hold, then a failure that names the first of the others.

    Where all of them are unusable, the last members stay.
    """
    refused = [address for address in members if not _is_usable(address)]
    if len(refused) < len(members) or not members:
        listing.take(_in_order(set(members).difference(refused)))
    if refused:
        text = f"{str(refused[0])[:100]!r} is no host and port"
        listing.fail(f"{text}; {len(refused)} of {len(members)} addresses are left out")


def _in_order(members: Iterable[Address]) -> tuple[Address, ...]:
    return tuple(sorted(set(members)))


def _is_usable(address: Address) -> bool:
    return 1 <= address.port <= 65_535 and "/" not in address.host and url_problem(f"http://{address}") is None
