"""Quota leases over a store whose answers come late, out of order or never: no unit is used twice, none is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.admission.quotas.quota_rules import rules_of
from gateway.admission.quotas.reservation import Reservation
from gateway.admission.quotas.tenant_quota import TenantQuota
from gateway.errors import GatewayError
from gateway.store.base import Exchanged, Hold, StoreLoss, StoreUnavailable
from gateway.store.forwarding import ForwardingStore
from gateway.store.meter import Draw, draw_units, even_share
from loadtests.simulation.virtual_loop import VirtualLoop
from routing_policies.policy.document import TenantLimits

MIDDAY = 1_750_000_000.0
REQUESTS, TOKENS, AT_ONCE = 12, 400, 5
WINDOW_S = 60.0


class HeldStore(ForwardingStore):
    """A store that carries out and answers calls when the machine lets it, one by one and in any order."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.calls: list[tuple[asyncio.Future[Exchanged], Any]] = []
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._holders: dict[str, tuple[int, float]] = {}

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        assert operation == "exchange"
        answer: asyncio.Future[Exchanged] = self._loop.create_future()
        self.calls.append((answer, arguments))
        return await answer

    async def aclose(self) -> None:
        """There is nothing to close."""

    def let(self, number: int, ending: str) -> None:
        """End one call: `done`, `refused` (nothing was done), or `lost` (done, and the answer never came)."""
        answer, arguments = self.calls.pop(number)
        result = None if ending == "refused" else self._apply(*arguments)
        if answer.done():
            return
        if ending == "done":
            assert result is not None
            answer.set_result(result)
        else:
            answer.set_exception(StoreUnavailable(StoreLoss.SLOW, ending, was_sent=ending == "lost"))

    def _apply(self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None) -> Exchanged:
        now = MIDDAY + self._loop.time()
        held, num_holders = 0, 1
        if hold is not None:
            others = {name: each for name, each in self._holders.items() if each[1] > now and name != holder}
            free = hold.limit - sum(units for units, _ in others.values())
            held = max(min(hold.units, free), 0)
            held += even_share(free - held, hold.spare, 0, len(others) + 1)
            self._holders, num_holders = {**others, holder: (held, now + hold.ttl_s)}, len(others) + 1
        grants = tuple(draw_units(self._counts[draw.meter.name], draw, now, num_holders) for draw in draws)
        return Exchanged(now, grants, held, num_holders)


class QuotaMachine(RuleBasedStateMachine):
    """Two processes that share the limits of one tenant."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.store = HeldStore(self.loop)
        self.faults: list[BaseException] = []
        limits = TenantLimits(
            requests_per_min=REQUESTS, tokens_per_min=TOKENS, max_in_flight=AT_ONCE, on_store_loss="refuse"
        )
        rules = rules_of(limits)
        assert rules is not None
        self.quotas = [
            TenantQuota(
                "t", rules, store=self.store, holder=name, clock=self.loop.time,
                wall=lambda: MIDDAY + self.loop.time(), report=self.faults.append, numbers=itertools.count(1),
            )
            for name in "ab"
        ]  # fmt: skip
        self.waiting: list[tuple[int, int, asyncio.Task[Reservation]]] = []
        self.open: list[tuple[int, int, Reservation]] = []
        self.used: list[tuple[float, int]] = []
        """When a request was let in, and the tokens that it may have used since."""
        self.flushes: set[asyncio.Task[None]] = set()

    def turn(self, delay_s: float = 0.0) -> None:
        self.loop.run_until_complete(asyncio.sleep(delay_s))
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))
        for entry in [entry for entry in self.waiting if entry[2].done()]:
            self.waiting.remove(entry)
            number, tokens, task = entry
            if not task.cancelled() and task.exception() is None:
                self.take(number, tokens, task.result())
            elif not task.cancelled():
                assert isinstance(task.exception(), GatewayError)

    async def try_reserve(self, quota: TenantQuota, tokens: int) -> Reservation | None:
        return quota.try_reserve(tokens, 0, self.loop.time())

    def take(self, number: int, tokens: int, reservation: Reservation) -> None:
        self.open.append((number, tokens, reservation))
        self.used.append((self.loop.time(), tokens))

    @rule(number=st.integers(0, 1), tokens=st.integers(1, 150))
    def come(self, number: int, tokens: int) -> None:
        quota = self.quotas[number]
        reservation = self.loop.run_until_complete(self.try_reserve(quota, tokens))
        if reservation is not None:
            self.take(number, tokens, reservation)
        else:
            task = self.loop.create_task(quota.reserve(tokens, 0, self.loop.time()))
            self.waiting.append((number, tokens, task))
        self.turn()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.waiting))[2].cancel()
        self.turn()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), share=st.floats(0.0, 1.0), is_served=st.booleans())
    def end(self, data: st.DataObject, share: float, is_served: bool) -> None:
        """A request ends with as many tokens as were reserved, or fewer."""
        number, tokens, reservation = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.quotas[number].num_in_flight
        if is_served:
            reservation.settle(round(tokens * share))
        else:
            reservation.cancel()
        reservation.settle(10**6)
        reservation.cancel()
        assert self.quotas[number].num_in_flight == before - 1, "it ends once"
        self.turn()

    @precondition(lambda self: self.store.calls)
    @rule(data=st.data(), ending=st.sampled_from(["done", "done", "done", "refused", "lost"]))
    def answer(self, data: st.DataObject, ending: str) -> None:
        self.store.let(data.draw(st.integers(0, len(self.store.calls) - 1)), ending)
        self.turn()

    @rule(number=st.integers(0, 1))
    def flush(self, number: int) -> None:
        task = self.loop.create_task(self.quotas[number].flush(self.loop.time()))
        self.flushes.add(task)
        task.add_done_callback(self.flushes.discard)
        self.turn()

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.turn(seconds)

    @invariant()
    def limits_hold(self) -> None:
        assert not self.faults
        for number, quota in enumerate(self.quotas):
            assert quota.num_in_flight == sum(holder == number for holder, _, _ in self.open)
            assert all(part.left >= 0 for part in quota.slices)
        since = self.loop.time() - WINDOW_S
        assert sum(at > since for at, _ in self.used) <= REQUESTS, "requests of a minute"
        assert sum(part.left for quota in self.quotas for part in quota.slices if part.unit == 1) <= TOKENS

    def teardown(self) -> None:
        """Whoever still waits gets an answer, and everything that ended is given back."""
        for _ in range(20):
            while self.store.calls:
                self.store.let(0, "done")
                self.turn()
            self.turn(0.1)
            if not (self.waiting or self.store.calls or self.flushes):
                break
        assert not self.waiting
        for _, _, reservation in self.open:
            reservation.cancel()
        assert [quota.num_in_flight for quota in self.quotas] == [0, 0]
        assert not self.faults
        self.loop.close()


TestQuotaMachine = QuotaMachine.TestCase
TestQuotaMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
