"""TenantQuota: one tenant's limits in one gateway process.

Units are drawn from the store ahead of need, in leases, so that a request takes its units by counting down. Only
when a lease is used up does a request wait for the store, and only for the store's timeout. A tenant without units
is refused without repeated calls.

When the store is lost, each limit follows its policy. `allow` limits the tenant to this process' part of the limit,
counted here and reported when the store is back; `refuse` refuses. An exchange that got no answer is repeated, under
its number, before the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.admission.quotas.in_flight import InFlight
from gateway.admission.quotas.lease import RENEW_AFTER_S, Needs, QuotaLease, Unit
from gateway.admission.quotas.quota_refusals import (
    IN_FLIGHT,
    nothing_left,
    too_contended,
    too_many_under_way,
    unchecked,
)
from gateway.admission.quotas.quota_rules import QuotaRules
from gateway.admission.quotas.reservation import Reservation
from gateway.store.base import REPEAT_S, Exchanged, Hold, Store, StoreLoss, StoreUnavailable
from gateway.store.meter import Draw
from gateway.timeline import Clock

HOLD_TTL_S: Final = 10.0
"""Seconds after which the concurrent units of a dead process expire."""
RENEW_S: Final = 4.0
"""Seconds between a process's signs of life when it has no other reason to call the store."""
MAX_WAIT_S: Final = 0.25
"""Seconds that a request waits for units that other requests take before it."""
PREFETCH_PAUSE_S: Final = 0.05
MIN_SPARE: Final = 2
"""Concurrent units held beyond those in use, where they are not scarce, so that few requests need a call."""
FLUSH_S: Final = 0.25
IDLE_S: Final = 1.0
ALONE_S: Final = 1.0
"""Seconds for which a process without its store goes on before it tries the store again."""

_NOTHING: Final[Needs] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An exchange with the store, which is the same when it is repeated."""

    number: int
    slices: tuple[QuotaLease, ...]
    draws: list[Draw]
    hold: Hold
    began_at: float


Wall = Callable[[], float]
"""Clock that returns seconds since 1970."""


class TenantQuota:
    """Quota of one tenant: `try_reserve` takes microseconds and never waits; where it returns None, use `reserve`."""

    __slots__ = (
        "_clock",
        "_holder",
        "_in_flight",
        "_is_lost",
        "_num_holders",
        "_numbers",
        "_prefetch_at",
        "_renew_at",
        "_report",
        "_requested_at",
        "_requesting",
        "_skew_s",
        "_slices",
        "_space",
        "_store",
        "_unconfirmed",
        "_used_at",
        "_waiting",
        "_wall",
        "tenant",
    )

    def __init__(
        self,
        tenant: str,
        rules: QuotaRules,
        *,
        store: Store,
        holder: str,
        clock: Clock,
        wall: Wall,
        report: Callable[[BaseException], None],
        numbers: Iterator[int],
    ) -> None:
        """Create a quota.

        `holder` names this process among all that share the store; `report` gets events that should never happen.
        `numbers` are those of exchanges, each used once in this process.
        """
        self.tenant = tenant
        self._space = f"quota.{tenant}"
        self._store = store
        self._holder = holder
        self._clock = clock
        self._wall = wall
        self._report = report
        self._slices: tuple[QuotaLease, ...] = ()
        self._in_flight = InFlight()
        self._waiting: dict[object, Needs] = {}
        self._requested_at = 0.0
        self._requesting: asyncio.Task[None] | None = None
        self._numbers = numbers
        self._unconfirmed: _Exchange | None = None
        """An exchange that the store may have done, without an answer that arrived."""
        self._is_lost = False
        self._num_holders = 1
        self._skew_s = 0.0
        """Difference of the store's clock from ours, in seconds."""
        self._prefetch_at = 0.0
        self._renew_at = 0.0
        self._used_at = 0.0
        self.configure(rules)

    def configure(self, rules: QuotaRules) -> None:
        """Take over a policy revision; what was used stays used, what is under way stays counted."""
        known = {part.meter.name: part for part in self._slices}
        slices = []
        for item in rules.allowances:
            part = known.get(item.meter.name)
            if part is None:
                part = QuotaLease(item.meter, item.unit, item.on_loss)
            else:
                part.configure(item.meter, item.on_loss)
            slices.append(part)
        self._slices = tuple(slices)
        self._in_flight.limit = rules.max_in_flight
        self._in_flight.on_loss = rules.on_loss

    @property
    def num_in_flight(self) -> int:
        """Return the number of reservations that have not ended."""
        return self._in_flight.now

    def bounded(self, prompt_tokens: int, output_tokens: int, nano: int) -> tuple[int, int]:
        """Return the tokens and cost to reserve; a forecast alone never exceeds the limits."""
        for part in self._slices:
            if part.unit is Unit.TOKEN:
                output_tokens = min(output_tokens, max(part.meter.limit - prompt_tokens, 0))
            elif part.unit is Unit.NANO:
                nano = min(nano, part.meter.limit)
        return prompt_tokens + output_tokens, nano

    @property
    def slices(self) -> tuple[QuotaLease, ...]:
        """Return this process's lease of each limit."""
        return self._slices

    # One request

    def try_reserve(self, tokens: int, nano: int, now: float) -> Reservation | None:
        """Return a reservation if this process has the units at hand, else None."""
        return self._take((1, tokens, nano), now) if not self._waiting else None

    async def reserve(self, tokens: int, nano: int, now: float) -> Reservation:
        """Reserve units, with calls to the store as needed.

        Raises:
            RateLimited: A rate limit leaves too few units.
            BudgetSpent: A budget is used up.
        """
        needs = (1, tokens, nano)
        give_up_at = now + MAX_WAIT_S
        has_requested = False
        ticket = object()
        try:
            while (reservation := self._take(needs, now)) is None:
                self._refuse_when_dry(needs, now, has_requested=has_requested)
                if now >= give_up_at:
                    raise too_contended(self.tenant)
                self._waiting[ticket] = needs
                await asyncio.shield(self._renew_soon(ahead=True))
                has_requested = True
                now = self._clock()
        finally:
            self._waiting.pop(ticket, None)
        return reservation

    def ended(self) -> None:
        """Note that a reservation has ended."""
        self._in_flight.now -= 1

    def _take(self, needs: Needs, now: float) -> Reservation | None:
        in_flight = self._in_flight
        if in_flight.limit is not None and (in_flight.now >= in_flight.held or now >= in_flight.until):
            return None
        slices = self._slices
        for part in slices:
            if part.left < needs[part.unit] or now >= part.until:
                return None
        is_low = in_flight.now + 1 >= in_flight.held and in_flight.limit is not None
        taken = []
        for part in slices:
            taken.append((part, part.bucket))
            part.left -= needs[part.unit]
            if part.left < part.low or now >= part.renew_at:
                is_low = True
        in_flight.now += 1
        self._used_at = now
        reservation = Reservation(self, taken, needs)
        if is_low and now >= self._prefetch_at and self._requesting is None:
            self._prefetch_at = now + PREFETCH_PAUSE_S
            self._renew_soon(ahead=True)
        return reservation

    def _refuse_when_dry(self, needs: Needs, now: float, *, has_requested: bool) -> None:
        """Refuse when the store lately lacked the units, or when it is lost and the policy then refuses.

        Raises:
            RateLimited: A rate limit leaves too few units.
            BudgetSpent: A budget is used up.
        """
        in_flight = self._in_flight
        is_lost = has_requested and self._is_lost
        if not in_flight.has_room(now):
            if is_lost and in_flight.on_loss == "refuse":
                raise unchecked(self.tenant, IN_FLIGHT)
            if in_flight.now >= in_flight.held and now < in_flight.retry_at:
                raise too_many_under_way(self.tenant, in_flight.limit)
        for part in self._slices:
            need = needs[part.unit]
            if part.knows_dry(need, now):
                raise nothing_left(self.tenant, part, need, now)
            if is_lost and part.on_loss == "refuse" and (part.left < need or now >= part.until):
                raise unchecked(self.tenant, part.meter.name)

    # The store

    async def flush(self, now: float) -> None:
        """Report to the store: units returned, permits held, and that this process lives.

        The report goes at once where units are scarce and other processes may refuse requests for want of them.
        """
        if now < self._requested_at + FLUSH_S:
            return
        in_flight = self._in_flight
        has_news = any(part.has_news(now, self._requested_at) for part in self._slices)
        is_alive = bool(in_flight.held or in_flight.now)
        holds_spare = in_flight.held > in_flight.now and (in_flight.is_tight or self._is_idle(now))
        if has_news or holds_spare or (is_alive and now >= self._renew_at):
            await asyncio.wait({self._renew_soon(ahead=False)})

    async def give_all_back(self) -> None:
        """Return all units at the end of the process; those in use stay charged until they expire."""
        if not self._requested_at:
            return  # no request needs it
        if self._requesting is not None:
            await asyncio.wait({self._requesting})
        self._used_at = -IDLE_S
        for part in self._slices:
            part.until = 0.0
        await asyncio.wait({self._renew_soon(ahead=False)})

    def _is_idle(self, now: float) -> bool:
        return self._used_at < 0 or now - self._used_at >= IDLE_S

    def _renew_soon(self, *, ahead: bool) -> asyncio.Task[None]:
        """Return the one exchange under way with the store, started if there is none."""
        if (
            self._requesting is None or self._requesting.done()
        ):  # of a task that is done the callback may be still to come
            self._requesting = asyncio.get_running_loop().create_task(self._renew(ahead=ahead))
            self._requesting.add_done_callback(self._requested)
        return self._requesting

    def _requested(self, task: asyncio.Task[None]) -> None:
        if self._requesting is task:
            self._requesting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)

    async def _renew(self, *, ahead: bool) -> None:
        is_confirmed = await self._is_confirmed()
        waiting = tuple(self._waiting.values())
        exchange = self._next_exchange(waiting, ahead=ahead)
        try:
            if not is_confirmed:
                raise StoreUnavailable(StoreLoss.DOWN, "the exchange before is unconfirmed", was_sent=False)
            self._take_over(exchange, await self._do(exchange), is_repeat=False)
        except StoreUnavailable as error:
            if error.was_sent:
                self._unconfirmed = exchange
            self._enforce_alone(exchange, was_sent=error.was_sent)
        except Exception as error:  # a fault of ours, of which requests that wait know nothing
            self._report(error)
            self._enforce_alone(exchange, was_sent=True)  # what it reported is dropped: it would fail again
        in_flight = self._in_flight
        if waiting and in_flight.held <= in_flight.now:
            in_flight.retry_at = self._clock() + RENEW_AFTER_S

    async def _is_confirmed(self) -> bool:
        """Repeat an exchange that got no answer, so that what it drew is neither lost nor drawn twice.

        Return False if the store gives no answer again.
        """
        exchange = self._unconfirmed
        if exchange is None:
            return True
        if self._clock() < exchange.began_at + REPEAT_S / 2:
            try:
                got = await self._do(exchange)
            except StoreUnavailable:
                return False
            except Exception as error:  # as in `_renew`
                self._report(error)
                self._unconfirmed = None
                return True
            self._take_over(exchange, got, is_repeat=True)
        else:
            for part, requested in zip(exchange.slices, exchange.draws, strict=True):
                part.unconfirmed(requested, may_be_known=True)
        self._unconfirmed = None
        return True

    async def _do(self, exchange: _Exchange) -> Exchanged:
        return await self._store.exchange(
            self._space, self._holder, exchange.draws, exchange.hold, number=exchange.number
        )

    def _next_exchange(self, waiting: tuple[Needs, ...], *, ahead: bool) -> _Exchange:
        now = self._clock()
        first = waiting[0] if waiting else _NOTHING
        slices = self._slices  # a new policy revision may come during the call to the store
        draws = [
            part.draw(first[part.unit], sum(needs[part.unit] for needs in waiting), now, ahead=ahead) for part in slices
        ]
        self._requested_at = now
        return _Exchange(next(self._numbers), slices, draws, self._hold(len(waiting), now, ahead=ahead), now)

    def _hold(self, num_waiting: int, now: float, *, ahead: bool) -> Hold:
        in_flight = self._in_flight
        if in_flight.limit is None:
            return Hold(IN_FLIGHT, 0, 0, HOLD_TTL_S)
        spare = 0 if self._is_idle(now) and not ahead else in_flight.now // 4 + MIN_SPARE
        return Hold(IN_FLIGHT, in_flight.limit, in_flight.now + num_waiting, HOLD_TTL_S, spare)

    def _take_over(self, exchange: _Exchange, got: Exchanged, *, is_repeat: bool) -> None:
        """Take what an exchange gave; a repeated one may be old, so it says nothing of the store's clock and counts."""
        now, began_at, hold = self._clock(), exchange.began_at, exchange.hold
        self._is_lost = False
        self._num_holders = max(got.num_holders, 1)
        if not is_repeat:
            self._skew_s = got.at - self._wall()
        self._renew_at = began_at + RENEW_S
        for part, requested, grant in zip(exchange.slices, exchange.draws, got.grants, strict=True):
            part.take(requested, grant, began_at, now, is_repeat=is_repeat)
        in_flight = self._in_flight
        in_flight.held, in_flight.until = got.held, began_at + HOLD_TTL_S
        in_flight.is_tight = got.held < hold.units + hold.spare

    def _enforce_alone(self, exchange: _Exchange, *, was_sent: bool) -> None:
        now, store_now = self._clock(), self._wall() + self._skew_s
        self._is_lost = True
        self._renew_at = now + RENEW_S
        for part, requested in zip(exchange.slices, exchange.draws, strict=True):
            if not was_sent:
                part.unconfirmed(requested, may_be_known=False)
            if part.on_loss == "allow":
                part.draw_alone(requested, self._num_holders, now, store_now)
        in_flight = self._in_flight
        if in_flight.limit is not None and in_flight.on_loss == "allow":
            in_flight.held = max(in_flight.held, _share(in_flight.limit, self._num_holders))
            in_flight.until = now + ALONE_S


def _share(limit: int, num_holders: int) -> int:
    """Return this process' even part of a limit, at least one unit."""
    return max(limit // num_holders, 1)
