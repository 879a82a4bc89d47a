"""MemberSource: where members are listed; and what every source does alike after a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

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


class Backoff:
    """Pauses after failures in a row, each twice as long as the one before."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def failed(self) -> float:
        """Return the seconds to wait after a further failure."""
        pause_s, self._next_s = self._next_s, min(2.0 * self._next_s, LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        """Begin anew after a success."""
        self._next_s = FIRST_PAUSE_S


async def poll(look: Callable[[], Awaitable[float]], listing: Listing, pause: Pause) -> None:
    """Look for ever; `look` returns the seconds until the next look, and a SourceError is reported and retried."""
    backoff = Backoff()
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
    return tuple(sorted(dict.fromkeys(members)))


def take_usable(listing: Listing, members: Sequence[Address]) -> None:
    """Report the members that a URL can hold, then a failure that names the first of the others.

    Where all of them are unusable, the last members stay.
    """
    fit = [address for address in members if _is_usable(address)]
    if fit or not members:
        listing.take(usable(fit))
    refused = next((address for address in members if not _is_usable(address)), None)
    if refused is not None:
        num_out = len(members) - len(fit)
        listing.fail(f"{str(refused)[:100]!r} is no host and port; {num_out} of {len(members)} addresses are left out")


def _is_usable(address: Address) -> bool:
    return 1 <= address.port <= 65_535 and "/" not in address.host and url_problem(f"http://{address}") is None
