"""What a decision costs: CPU time of pricing, quota, admission and routing, many deployments and tenants at once.

The parts that serve are called as the pipeline calls them, in one process and without sockets, which is why this bench
imports the gateway. Requests are under way at every deployment all the while; every request that is decided ends an
older one, and what that costs (its first token, its end, what is learned from it) is distinguished. Time is that of the
process, so other work on the machine does not count. The same is done with one deployment and a policy without
targets or limits, which is what a first installation has.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import tempfile
import time
from collections import deque
from hashlib import sha256
from pathlib import Path
from typing import cast

from gateway.admission.admitter import Admitter
from gateway.admission.gate import AdmissionGate
from gateway.admission.guard import OverloadGuard
from gateway.admission.ladder import Ladder
from gateway.admission.quotas.quotas import Quotas
from gateway.app.connections.store_opening import open_store
from gateway.app.connections.upstream_clients import open_upstream
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.flight import InFlightRequest
from gateway.deployments.price import Pricer
from gateway.limits.permit import Permit
from gateway.request_context import RequestContext
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from gateway.store.address import parse_store
from gateway.telemetry.records.record import RequestRecord, Usage
from gateway.timeline import Outcome
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.reach import UpstreamReach
from loadtests.harness.card import Card
from routing_policies.loading import load_policy

_BATCH = 250
_WARM_BATCHES = 12
_GAP_S = 0.0001
_DRAWN_TOKENS = 200_000
_NUM_READING = 100
"""Requests without a first token, over all deployments."""
_NOBODY: frozenset[str] = frozenset()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--decisions", type=int, default=20_000, help="to measure (default %(default)s)")
    parser.add_argument("--deployments", type=int, default=50, help="(default %(default)s)")
    parser.add_argument("--tenants", type=int, default=200, help="(default %(default)s)")
    parser.add_argument("--in-flight", type=int, default=20, help="requests at each deployment (default %(default)s)")
    parser.add_argument("--policy", default="latency_first", help="of the route (default %(default)s)")
    parser.add_argument("--turns", type=int, default=4, help="turns of each conversation (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all choices (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    many, one = await _measure(options, _large_policy(options)), await _measure(options, _small_policy())
    return Card(
        bench="admission_cost",
        arrivals=f"{options.decisions} decisions one after the other, {options.in_flight} requests at each deployment",
        results={
            "admission_us": many.admission_us,
            "ending_us": many.ending_us,
            "refused": many.num_refused,
            "first_installation_admission_us": one.admission_us,
            "first_installation_ending_us": one.ending_us,
            "deployments": options.deployments,
            "tenants": options.tenants,
            "policy": options.policy,
        },
        notes=(
            "admission: key, lane, route, price, quota, who holds the conversation, gate, choice, permit, sending",
            "ending: first token, end, permit, quota and prices settled",
        ),
        failed=f"{many.num_refused} requests were refused" if many.num_refused > options.decisions / 100 else None,
    )


class _Cost:
    """CPU seconds of both halves, and over how many requests."""

    def __init__(self) -> None:
        self.admission_s = 0.0
        self.ending_s = 0.0
        self.num_decided = 0
        self.num_ended = 0
        self.num_refused = 0

    @property
    def admission_us(self) -> float:
        """For each request that was decided."""
        return self.admission_s / self.num_decided * 1e6

    @property
    def ending_us(self) -> float:
        """For each request that ended."""
        return self.ending_s / self.num_ended * 1e6


class _UnderWay:
    """A request that was sent."""

    __slots__ = ("flight", "permit", "request", "sent_at", "turn")

    def __init__(
        self, turn: RequestContext, request: ChatRequest, permit: Permit, flight: InFlightRequest, sent_at: float
    ) -> None:
        self.turn = turn
        self.request = request
        self.permit = permit
        self.flight = flight
        self.sent_at = sent_at


class _Bench:
    """The parts of one gateway, called in the order of its pipeline."""

    def __init__(self, policy: str, path: Path, rng: random.Random) -> None:
        self.now = 0.0
        self._rng = rng
        document = load_policy(policy, source="bench")
        builder = SnapshotBuilder(clock=self.clock, rng=rng, environment={}, connect=_connect_nowhere)
        self.snapshot: PolicySnapshot = builder.build(document, "bench")
        for live in self.snapshot.deployments.values():
            live.is_ready = True
        self._store = open_store(
            parse_store(f"embedded:{path}"), timeout_s=1.0, clock=self.clock, wall=self.clock, on_damage=print
        )
        self._quotas = Quotas(self._store, holder="bench", clock=self.clock, wall=self.clock, report=_raise)
        self._quotas.configure(document)
        guard = OverloadGuard(memory_limit_bytes=None, resident_bytes=lambda: None)
        self._admitter = Admitter(self.clock, guard)
        self._pricer = Pricer()
        self._gate = AdmissionGate(ladder=cast(Ladder, _NoLadder()), clock=self.clock)
        self.reading: deque[_UnderWay] = deque()
        """Without a first token."""
        self.under_way: deque[_UnderWay] = deque()
        self._others = asyncio.all_tasks()
        """Not the quotas': whoever runs the bench."""
        self.dry: set[str] = set()
        """Tenants that had to call the store: those requests wait, and are not counted."""

    def clock(self) -> float:
        """Seconds of the bench's own time."""
        return self.now

    async def top_up(self) -> None:
        """What the quotas do in the background: those that run dry draw on the store, as their requests would."""
        for tenant in self.dry:
            quota = self._quotas.by_tenant.get(tenant)
            assert quota is not None, "only who has limits runs dry"
            (await quota.reserve(_DRAWN_TOKENS, 0, self.now)).cancel()
        self.dry.clear()
        if drawing := asyncio.all_tasks() - self._others:  # ahead of need, while requests are served
            await asyncio.wait(drawing)
        for quota in self._quotas:
            await quota.flush(self.now)

    def turn(self) -> RequestContext:
        """One request's state, as the pipeline makes it."""
        return RequestContext({}, _no_send, RequestRecord("bench", self.now), self.snapshot, self.clock)

    def admit(self, turn: RequestContext, head: ChatHead, request: ChatRequest) -> bool:
        """From the key to the request's being sent; False when it would have had to wait, or for the store."""
        snapshot, router, record = self.snapshot, self.snapshot.router, turn.record
        caller = turn.caller = self._admitter.identify(turn, head, "127.0.0.1")
        record.tenant = caller.tenant
        admission = self._admitter.admit(snapshot, head, caller, received_at=self.now, is_draining=False)
        planned = router.match(request.model, caller.tenant, {})
        record.route = planned.route.id
        price = turn.price = self._pricer.price(request, tenant=caller.tenant, route=record.route)
        quota = self._quotas.by_tenant.get(caller.tenant)
        if quota is not None:
            nano = self._quotas.price_of(price, planned.deployment_ids)
            turn.reservation = quota.try_reserve(price.total_tokens, nano, self.now)
            if turn.reservation is None:
                self.dry.add(caller.tenant)
                return False
        admission_request, tpot_slo_s = self._admitter.admission_request(snapshot, head, admission, price)
        routing_request = router.with_history(RoutingRequest(price, admission_request, tpot_slo_s=tpot_slo_s), request)
        admitted = self._gate.decide(turn, request, planned, routing_request)
        sent = turn.routing_request
        assert sent is not None, "the gate decides as expected"
        live, _ = router.pick(planned, _NOBODY, admission_request.lane.id, sent, admitted.avoid, admitted.seen)
        permit = live.limiter.try_acquire(admitted.admission_request)
        if permit is None:
            return False
        record.deployment = live.id
        flight = live.forecast.note_sent(self.now, sent.price_at(live.id), lane=admission_request.lane.engine_lane)
        self.reading.append(_UnderWay(turn, admitted.request, permit, flight, self.now))
        return True

    def begin(self, one: _UnderWay) -> None:
        """Its first token came."""
        one.flight.first_token(self.now)
        unqueued_s = one.flight.unqueued_ttft_s
        one.permit.note_ttft(unqueued_s, unqueued_s)  # nothing queues here: who had to wait would not be counted
        self.under_way.append(one)

    def beginning(self) -> list[_UnderWay]:
        """Those whose prompt has been read by now."""
        return [self.reading.popleft() for _ in range(max(0, len(self.reading) - _NUM_READING))]

    def end(self, one: _UnderWay) -> None:
        """Its answer came, whole."""
        record = one.turn.record
        price = one.flight.price
        record.usage = Usage(price.prompt_tokens, self._rng.randrange(1, 400), price.prompt_tokens // 2)
        record.outcome = Outcome.COMPLETED
        one.flight.ended(self.now + 0.5, record.usage)
        one.permit.release()
        if one.turn.reservation is not None:
            self._quotas.settle(one.turn.reservation, record, price)
        self._pricer.settle(one.request, record.usage, tenant=record.tenant, route=record.route)

    async def aclose(self) -> None:
        """Give back what was drawn."""
        await self._quotas.give_all_back()
        await self._store.aclose()


async def _measure(options: argparse.Namespace, policy: str) -> _Cost:
    rng, cost = random.Random(options.seed), _Cost()
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(policy, Path(folder) / "store.sqlite3", rng)
        traffic = _Traffic(options, rng)
        most = options.in_flight * len(bench.snapshot.deployments)
        for _ in range(_WARM_BATCHES):
            for _ in range(_BATCH):
                bench.now += _GAP_S
                bench.admit(bench.turn(), *traffic.next())
            await bench.top_up()
            for one in bench.beginning():
                bench.begin(one)
            while len(bench.under_way) > most:
                bench.end(bench.under_way.popleft())
        gc.collect()
        gc.disable()
        try:
            while cost.num_decided < options.decisions:
                await _one_batch(bench, traffic, cost, most)
        finally:
            gc.enable()
        await bench.aclose()
    return cost


async def _one_batch(bench: _Bench, traffic: _Traffic, cost: _Cost, most: int) -> None:
    """Some requests in, as many out, each half timed as one."""
    arriving = [(bench.turn(), *traffic.next()) for _ in range(_BATCH)]
    before = time.process_time()
    for turn, head, request in arriving:
        bench.now += _GAP_S
        cost.num_refused += not bench.admit(turn, head, request)
    cost.admission_s += time.process_time() - before
    cost.num_decided += _BATCH
    beginning = bench.beginning()
    leaving = [bench.under_way.popleft() for _ in range(min(len(beginning), len(bench.under_way)))]
    before = time.process_time()
    for one in beginning:
        bench.begin(one)
    for one in leaving:
        bench.end(one)
    cost.ending_s += time.process_time() - before
    cost.num_ended += len(leaving)
    await bench.top_up()


class _Traffic:
    """Heads and conversations, already read and parsed; each conversation grows by a turn with every request."""

    def __init__(self, options: argparse.Namespace, rng: random.Random) -> None:
        self._options = options
        self._rng = rng
        self._parser = ChatRequestParser()
        self._heads = [ChatHead(_headers(number)) for number in range(options.tenants)]
        self._conversations: list[list[dict[str, str]]] = [[] for _ in range(4 * options.tenants)]

    def next(self) -> tuple[ChatHead, ChatRequest]:
        """Of any tenant."""
        number = self._rng.randrange(len(self._conversations))
        conversation = self._conversations[number]
        if len(conversation) > 2 * self._options.turns:
            conversation.clear()
        if not conversation:
            conversation.append({"role": "system", "content": f"You help tenant {number % 7}. " + "Be brief. " * 60})
        else:
            conversation.append({"role": "assistant", "content": "Certainly. " * self._rng.randrange(5, 60)})
        conversation.append({"role": "user", "content": f"{self._rng.random()} " * self._rng.randrange(1, 40)})
        body = {"model": "auto", "stream": True, "max_tokens": 400, "messages": conversation}
        return self._heads[number % self._options.tenants], self._parser.parse(json.dumps(body).encode())


def _headers(number: int) -> list[tuple[bytes, bytes]]:
    return [
        (b"authorization", b"Bearer key-%d" % number),
        (b"content-type", b"application/json"),
        (b"x-stainless-read-timeout", b"600"),
    ]


def _large_policy(options: argparse.Namespace) -> str:
    names = [f"d{number}" for number in range(options.deployments)]
    document = {
        "schema_version": 1,
        "deployments": [
            {
                "id": name,
                "url": f"unix:/nowhere/{name}.sock",
                "model": "model",
                "cost_per_mtok": {"prompt": 0.1 + number % 3, "completion": 0.4 + number % 3},
                "limits": {"max_in_flight": 10_000},
            }
            for number, name in enumerate(names)
        ],
        "lanes": [
            {"id": "interactive", "weight": 8, "slo": {"ttft_p95_ms": 5000, "tpot_p95_ms": 2000}},
            {"id": "batch", "slo": {"ttft_p95_ms": 60000}},
        ],
        "tenants": [
            {
                "id": f"t{number}",
                "keys": [{"id": "k", "sha256": sha256(b"key-%d" % number).hexdigest()}],
                "limits": {"tokens_per_min": 1_000_000_000},
            }
            for number in range(options.tenants)
        ],
        "routes": [{"id": "main", "select": {"policy": options.policy, "candidates": names}}],
    }
    return json.dumps(document)  # JSON is YAML


def _small_policy() -> str:
    deployment = {"id": "d", "url": "unix:/nowhere/d.sock", "model": "model", "limits": {"max_in_flight": 10_000}}
    return json.dumps({"schema_version": 1, "deployments": [deployment]})


class _NoLadder:
    """No degradation steps: all requests are in time."""

    def take(self, step: object, form: object) -> None:
        """None helps."""


async def _no_send(message: object) -> None:
    """Nobody listens."""


def _connect_nowhere(name: str, reach: UpstreamReach) -> UpstreamClient:
    """Nothing is sent."""
    return open_upstream(Target.parse("http://nobody.invalid"), limits=PoolLimits())


def _raise(error: BaseException) -> None:
    raise error
