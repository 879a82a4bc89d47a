"""A small world in virtual time: the parts that admit, in front of engines of stated speed. Nothing in it is random
but what a test draws."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from gateway.access.api_keys import Caller
from gateway.admission.admitter import Admitter
from gateway.admission.gate import AdmissionGate
from gateway.admission.guard import OverloadGuard
from gateway.admission.ladder import Ladder
from gateway.app.connections.upstream_clients import connector_of
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequestParser
from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.deployments.price import Pricer
from gateway.errors import Shed
from gateway.request_context import RequestContext
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import SnapshotBuilder
from gateway.telemetry.records.record import RequestRecord, Usage
from routing_policies.loading import load_policy

BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """An engine: rows, a prefill that works on one prompt after the other, and a step that grows with the rows."""

    rows: int = 16
    prefill_tokens_per_s: float = 8000.0
    step_s: float = 0.010
    row_s: float = 0.001

    def tpot_s(self, rows: int) -> float:
        return self.step_s + self.row_s * rows


class Engine:
    """Rows are given first come, first served. A prompt that has a row is prefilled after those of its lane before it,
    at half speed while another lane's are too, as an engine does that takes chunks of both in turn; then decoded."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.slowdown = 1.0
        self.tokens_made = 0
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._hold_s = 1.0
        """How long a row is held, a mean over the last few."""
        self._prefill_free_at: dict[str, float] = {}

    async def first_token(self, prompt_tokens: int, lane: str) -> None:
        """Returns when the first token is there; from then on a row is held."""
        loop = asyncio.get_running_loop()
        if self.running >= self.speed.rows:
            ctx: asyncio.Future[None] = loop.create_future()
            self._waiting.append(ctx)
            await ctx
        else:
            self.running += 1
        now, free_at = loop.time(), self._prefill_free_at
        num_busy = 1 + sum(other != lane and at > now for other, at in free_at.items())
        work_s = prompt_tokens / self.speed.prefill_tokens_per_s * self.slowdown * num_busy
        free_at[lane] = max(now, free_at.get(lane, now)) + work_s
        await asyncio.sleep(free_at[lane] - now + self.speed.tpot_s(self.running) * self.slowdown)
        self.tokens_made += 1

    def report(self) -> LoadReport:
        """How busy it is now."""
        now, speed = asyncio.get_running_loop().time(), self.speed
        batch_wait_s = len(self._waiting) * self._hold_s / max(self.running, 1)
        lanes = {
            lane: LaneReport(
                forecast_wait_s=batch_wait_s + max(self._prefill_free_at.get(lane, now) - now, 0.0),
                prefill_tokens_per_s=speed.prefill_tokens_per_s / self.slowdown,
            )
            for lane in ("interactive", "long", "batch")
        }
        return LoadReport(
            num_running=self.running,
            num_waiting=len(self._waiting),
            max_num_seqs=speed.rows,
            waiting_prompt_tokens=0,
            forecast_wait_s=batch_wait_s,
            lanes=lanes,
        )

    async def rest(self, output_tokens: int) -> None:
        """The other tokens; gives the row back."""
        hold_s = (output_tokens - 1) * self.speed.tpot_s(self.running) * self.slowdown
        self._hold_s += 0.1 * (hold_s - self._hold_s)
        try:
            await asyncio.sleep(hold_s)
            self.tokens_made += output_tokens - 1
        finally:
            while self._waiting:
                ctx = self._waiting.popleft()
                if not ctx.done():
                    ctx.set_result(None)
                    break
            else:
                self.running -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One request of a client."""

    at_s: float
    prompt_tokens: int = 200
    output_tokens: int = 40
    tenant: str = "t"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True, kw_only=True)
class Fate:
    """What became of it; seconds from when it was due."""

    wish: Wish
    lane: str = ""
    reason: str | None = None
    refused_s: float = 0.0
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    degraded: tuple[str, ...] = ()
    hint: str = ""

    def is_good(self, ttft_s: float, tpot_s: float) -> bool:
        return self.reason is None and self.ttft_s <= ttft_s and self.tpot_s <= tpot_s


@dataclass(slots=True, kw_only=True)
class Fates:
    """Those of one run."""

    all: list[Fate] = field(default_factory=list)

    def after(self, at_s: float, before_s: float = float("inf")) -> Fates:
        return Fates(all=[fate for fate in self.all if at_s <= fate.wish.at_s < before_s])

    def of(self, tenant: str) -> Fates:
        return Fates(all=[fate for fate in self.all if fate.wish.tenant == tenant])

    @property
    def admitted(self) -> list[Fate]:
        return [fate for fate in self.all if fate.reason is None]

    @property
    def refused(self) -> list[Fate]:
        return [fate for fate in self.all if fate.reason is not None]

    def ttft_s(self, share: float) -> float:
        return quantile([fate.ttft_s for fate in self.admitted], share)

    def num_good(self, ttft_s: float, tpot_s: float) -> int:
        return sum(fate.is_good(ttft_s, tpot_s) for fate in self.all)


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class NoReservations:
    """A cache without answers, as far as the ladder requests any."""

    def stale(self, *request: object) -> None:
        """None."""


class NothingCut:
    """A trimmer that cuts nothing, as far as the ladder requests more."""

    def trim_more(self, *request: object) -> None:
        """None."""


class World:
    """Gateway parts and engines on the running virtual loop."""

    def __init__(self, policy: str, speeds: dict[str, Speed]) -> None:
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        builder = SnapshotBuilder(
            clock=loop.time, connect=connector_of(loop.time), rng=random.Random(1), environment={}
        )
        self.snapshot = builder.build(load_policy(policy, source="test"), "r1")
        for live in self.snapshot.deployments.values():
            live.is_ready = True
        self.engines = {name: Engine(speed) for name, speed in speeds.items()}
        self._pricer = Pricer()
        ladder = Ladder(trimmer=cast(Any, NothingCut()), cache=cast(Any, NoReservations()), pricer=self._pricer)
        self._gate = AdmissionGate(ladder=ladder, clock=loop.time)
        self._admitter = Admitter(loop.time, OverloadGuard(memory_limit_bytes=None, resident_bytes=lambda: None))
        self._parser = ChatRequestParser()

    async def run(self, wishes: Iterable[Wish]) -> Fates:
        """Offer all at their time, whatever became of those before, and wait for the last."""
        began_at, tasks = self.clock(), []
        feed = asyncio.ensure_future(self._publish_loads())
        for wish in wishes:
            delay_s = began_at + wish.at_s - self.clock()
            if delay_s > 0.0:
                await asyncio.sleep(delay_s)
            tasks.append(asyncio.ensure_future(self.routing_request(wish)))
        fates = Fates(all=list(await asyncio.gather(*tasks)))
        feed.cancel()
        self.check_integrity()
        return fates

    async def _publish_loads(self) -> None:
        """Each engine states ten times a second how busy its lanes are, as the bundled one does."""
        while True:
            for name, live in self.snapshot.deployments.items():
                live.forecast.note_report(self.clock(), self.engines[name].report())
            await asyncio.sleep(0.1)

    async def routing_request(self, wish: Wish) -> Fate:
        """One request, the way the pipeline takes it."""
        came_at, fate = self.clock(), Fate(wish=wish)
        try:
            await self._serve(wish, fate, came_at)
        except Shed as shed:
            fate.reason, fate.refused_s, fate.lane = shed.reason, self.clock() - came_at, shed.lane
            fate.hint = shed.degraded.hint
        return fate

    async def _serve(self, wish: Wish, fate: Fate, came_at: float) -> None:
        snapshot, head = self.snapshot, ChatHead([*wish.headers])
        body = b'{"model":"auto","stream":true,"messages":[{"role":"user","content":"%b"}]}' % (
            b"q" * max(wish.prompt_tokens * BYTES_PER_TOKEN - 70, 1)
        )
        request = self._parser.parse(body)
        ctx = RequestContext({}, _nowhere, RequestRecord("r", came_at), snapshot, self.clock)
        caller = Caller(tenant=wish.tenant)
        admission = self._admitter.admit(snapshot, head, caller, received_at=came_at, is_draining=False)
        planned = snapshot.router.match(request.model, None, {})
        price = self._pricer.price(request, tenant=wish.tenant, route=planned.route.id)
        admission_request, tpot_slo_s = self._admitter.admission_request(snapshot, head, admission, price)
        routing_request = RoutingRequest(price, admission_request, tpot_slo_s=tpot_slo_s)
        admitted = self._gate.decide(ctx, request, planned, routing_request)
        fate.lane, fate.degraded = admitted.lane.id, ctx.record.degraded
        live, _ = snapshot.router.pick(
            admitted.stand_in or planned, frozenset(), admitted.lane.id, ctx.routing_request, admitted.avoid
        )
        with await live.limiter.acquire(admitted.admission_request) as permit:
            engine, lane = self.engines[live.id], admitted.lane.engine_lane
            sent_at = self.clock()
            flight = live.forecast.note_sent(sent_at, price, lane=lane)
            usage = None
            try:
                await engine.first_token(wish.prompt_tokens, lane)
                first_at = self.clock()
                flight.first_token(first_at)
                permit.note_ttft(first_at - sent_at, flight.unqueued_ttft_s)
                await engine.rest(wish.output_tokens)
                usage = Usage(wish.prompt_tokens, wish.output_tokens)
            finally:
                flight.ended(self.clock(), usage)
        self._pricer.settle(request, usage, tenant=wish.tenant, route=planned.route.id)
        fate.ttft_s = first_at - came_at
        fate.tpot_s = (self.clock() - first_at) / max(wish.output_tokens - 1, 1)

    def check_integrity(self) -> None:
        """Nothing is held and nothing waits."""
        for live in self.snapshot.deployments.values():
            live.limiter.check_integrity()
            assert (live.limiter.in_flight, live.limiter.num_waiting) == (0, 0)
        assert all(lane.num_waiting == 0 for lane in self.snapshot.lanes.values())


async def _nowhere(message: object) -> None:
    """A client that is not there."""


def poisson(
    rate_per_s: float, seconds: float, rng: random.Random, *, starts_s: float = 0.0, **wish: object
) -> list[Wish]:
    """Wishes at random instants; lengths are log-normal about the given means by default."""
    wishes, at_s = [], starts_s + rng.expovariate(rate_per_s)
    spread = wish.pop("spread", 0.5)
    assert isinstance(spread, float)
    prompt, output = int(str(wish.pop("prompt_tokens", 200))), int(str(wish.pop("output_tokens", 40)))
    while at_s < starts_s + seconds:
        wishes.append(
            Wish(
                at_s=at_s,
                prompt_tokens=max(20, round(prompt * rng.lognormvariate(0.0, spread))),
                output_tokens=max(2, round(output * rng.lognormvariate(0.0, spread))),
                **wish,  # type: ignore[arg-type]
            )
        )
        at_s += rng.expovariate(rate_per_s)
    return wishes


def together(*streams: list[Wish]) -> list[Wish]:
    """All of them in the order of time."""
    return sorted((wish for stream in streams for wish in stream), key=lambda wish: wish.at_s)
