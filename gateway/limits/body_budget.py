"""BodyBudget: the memory that request bodies and whole answers may take, in total and for each tenant.

A body counts from the reading of its head until the end of its request. The count covers the bytes read, their parsed
form, and an answer that is held whole.

The rule is the dynamic threshold of shared-memory switches [1]. A tenant may take more while it holds at most
`SHARE_OF_FREE` times the free memory. A lone tenant gets three quarters of the budget. Some memory always stays free
for the next tenant, however many there are.

A request that does not fit waits briefly, unread, so the socket's flow control slows the client down. Then it is
refused.

[1] Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on
Networking 6(2), 1998.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.errors import RequestTooLarge, Shed, ShedReason

SHARE_OF_FREE: Final = 3
"""Bytes that a tenant may hold for each free byte."""
WAIT_S: Final = 5.0
"""Seconds that a body waits for room before it is refused."""
MAX_WAITING: Final = 16
"""Requests of one tenant that may wait; each may hold hundreds of kilobytes in the socket's buffers already."""
RETRY_AFTER_S: Final = 2.0

READ_RATIO: Final = 3
"""The bytes, the texts in them, and the bytes that are sent on; or the pieces and the whole while they are joined."""
CONTAINER_BYTES: Final = 88
"""Bytes of an empty list or object."""
VALUE_BYTES: Final = 96
"""Bytes of a short text or a number, its key, and its place in a list or object."""

NOBODY: Final = ""
"""Tenant id of clients that have none, or whose tenant is not determined yet; they share one part."""
OPERATORS: Final = "(operators)"
"""Tenant id of clients of the admin listener; no real id has brackets."""


class BodyBudget:
    """Budget of one gateway process; single-threaded. `BodyReservation.release` returns every reservation."""

    __slots__ = ("_used", "_wait_s", "_waiting", "total_bytes", "used_bytes")

    def __init__(self, total_bytes: int, *, wait_s: float = WAIT_S) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._wait_s = wait_s
        self._used: dict[str, int] = {}
        self._waiting: dict[str, deque[_Waiter]] = {}

    @property
    def most_bytes(self) -> int:
        """Maximum number of bytes that one tenant, and so one request, can hold."""
        return self.total_bytes * SHARE_OF_FREE // (1 + SHARE_OF_FREE)

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for room."""
        return sum(map(len, self._waiting.values()))

    def used_by(self, tenant: str) -> int:
        """Return the bytes that the tenant's requests hold."""
        return self._used.get(tenant, 0)

    def open(self, tenant: str) -> BodyReservation:
        """Return an empty reservation."""
        return BodyReservation(self, tenant)

    def try_take(self, reservation: BodyReservation, num_bytes: int) -> bool:
        """Add to the reservation if there is room now and no earlier request of the tenant waits for it."""
        tenant = reservation.tenant
        if not reservation.num_bytes and tenant in self._waiting:
            return False
        return self._take(reservation, num_bytes)

    async def take(self, reservation: BodyReservation, num_bytes: int) -> None:
        """Add to the reservation, waiting for room.

        Raises:
            Shed: There is no room in time, or too many requests of the tenant wait.
            RequestTooLarge: The reservation can never fit.
        """
        if reservation.num_bytes + num_bytes > self.most_bytes:
            raise RequestTooLarge(
                "This request and its answer take more memory than this gateway may use for one. Send a smaller one."
            )
        if self.try_take(reservation, num_bytes):
            return
        line = self._waiting.get(reservation.tenant)
        if line is not None and len(line) >= MAX_WAITING:
            raise self._shed(reservation.tenant)
        await self._wait(_Waiter(reservation, num_bytes, asyncio.get_running_loop().create_future()))

    def give_back(self, tenant: str, num_bytes: int) -> None:
        """Return bytes of a reservation, and grant them to waiting requests."""
        left = self._used[tenant] - num_bytes
        if left:
            self._used[tenant] = left
        else:
            del self._used[tenant]
        self.used_bytes -= num_bytes
        if self._waiting:
            self._serve()

    def check_integrity(self) -> None:
        """Check the invariants; raises AssertionError."""
        assert self.used_bytes == sum(self._used.values()) <= self.total_bytes
        assert all(used > 0 for used in self._used.values())
        assert all(self._waiting.values()), "an empty line is forgotten"

    def _take(self, reservation: BodyReservation, num_bytes: int) -> bool:
        tenant = reservation.tenant
        used = self._used.get(tenant, 0) + num_bytes
        if used > SHARE_OF_FREE * (self.total_bytes - self.used_bytes - num_bytes):
            return False
        if num_bytes:
            self._used[tenant] = used
            self.used_bytes += num_bytes
            reservation.num_bytes += num_bytes
        return True

    async def _wait(self, waiter: _Waiter) -> None:
        tenant = waiter.reservation.tenant
        line = self._waiting.setdefault(tenant, deque())
        if waiter.reservation.num_bytes:
            line.appendleft(waiter)  # the bytes that it holds are useless until it has the rest
        else:
            line.append(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.granted
        except TimeoutError:
            if not waiter.is_granted:
                raise self._shed(tenant) from None
        finally:
            if not waiter.is_granted:
                line.remove(waiter)
                if not line:
                    del self._waiting[tenant]
                else:
                    self._serve()  # the next in line may need less

    def _serve(self) -> None:
        """Grant the waiting requests that fit now, first those of tenants that hold least, each in order."""
        for tenant in sorted(self._waiting, key=self.used_by):
            line = self._waiting[tenant]
            while line and self._take(line[0].reservation, line[0].num_bytes):
                waiter = line.popleft()
                waiter.is_granted = True
                if not waiter.granted.done():
                    waiter.granted.set_result(None)
            if not line:
                del self._waiting[tenant]

    def _shed(self, tenant: str) -> Shed:
        is_own = 2 * self.used_by(tenant) > self.used_bytes
        whose = "Requests of this key hold" if is_own else "Requests that came earlier hold"
        return Shed(
            ShedReason.TENANT_SHARE if is_own else ShedReason.OVERLOAD,
            lane="",
            message=f"{whose} the memory that this gateway has for bodies. Try again after the time in Retry-After.",
            hint="Fewer large requests at the same time, or smaller ones.",
            retry_after_s=RETRY_AFTER_S,
            queue_depth=self.num_waiting,
        )


class BodyReservation:
    """Growing part of the budget for one request; `release` returns all of it."""

    __slots__ = ("_budget", "num_bytes", "tenant")

    def __init__(self, budget: BodyBudget, tenant: str) -> None:
        self._budget = budget
        self.tenant = tenant
        self.num_bytes = 0

    def try_cover(self, num_bytes: int) -> bool:
        """Hold at least `num_bytes`, if there is room now."""
        missing = num_bytes - self.num_bytes
        return missing <= 0 or self._budget.try_take(self, missing)

    def try_grow(self, num_bytes: int) -> bool:
        """Hold `num_bytes` more, if there is room now."""
        return self._budget.try_take(self, num_bytes)

    async def cover(self, num_bytes: int) -> None:
        """Hold at least `num_bytes`, waiting for room.

        Raises:
            Shed: There is no room in time.
            RequestTooLarge: The reservation can never fit.
        """
        missing = num_bytes - self.num_bytes
        if missing > 0:
            await self._budget.take(self, missing)

    def beside(self) -> BodyReservation:
        """Return another reservation of the tenant, to be released separately."""
        return BodyReservation(self._budget, self.tenant)

    def release(self) -> None:
        """Return all bytes. Idempotent."""
        num_bytes, self.num_bytes = self.num_bytes, 0
        if num_bytes:
            self._budget.give_back(self.tenant, num_bytes)


class _Waiter:
    """A request that waits for room.

    Its `is_granted` means that the reservation has the bytes, even if the future is cancelled.
    """

    __slots__ = ("granted", "is_granted", "num_bytes", "reservation")

    def __init__(self, reservation: BodyReservation, num_bytes: int, granted: asyncio.Future[None]) -> None:
        self.reservation = reservation
        self.num_bytes = num_bytes
        self.granted = granted
        self.is_granted = False


def parsed_bytes(body: bytes) -> int:
    """Memory for the body and its parsed form, at most or nearly so: `[[],[],…` takes thirty times its length.

    Commas and brackets inside texts are counted as well; three scans in C cost a microsecond for a usual request.
    """
    num_containers = body.count(b"[") + body.count(b"{")
    return READ_RATIO * len(body) + CONTAINER_BYTES * num_containers + VALUE_BYTES * body.count(b",")
