"""A few modelled engines behind one route, in virtual time: the router, the permits and the forecasts are those that
serve, the engines are loadtests' model of one."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from gateway.deployments.flight import InFlightRequest
from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.limits.permit import AdmissionRequest, Permit
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from gateway.telemetry.records.record import Usage
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.reach import UpstreamReach
from loadtests.engines.modelled_engine import EngineModel, EngineShape, Job, Step
from routing_policies.estimation.estimators import Price
from routing_policies.loading import load_policy

REPORT_S = 0.1


def fleet_policy(num: int, policy: str = "latency_first", *, max_in_flight: int = 64, rest: str = "") -> str:
    """A route over `num` deployments d0, d1, …"""
    names = [f"d{number}" for number in range(num)]
    lines = [
        f"  - {{id: {name}, url: 'unix:/none/{name}.sock', model: m, limits: {{max_in_flight: {max_in_flight}}}}}"
        for name in names
    ]
    route = f"routes: [{{id: r, select: {{policy: {policy}, candidates: [{', '.join(names)}]{rest}}}}}]"
    return "\n".join(["schema_version: 1", "deployments:", *lines, route, ""])


def snapshot_of(text: str, clock: Callable[[], float], seed: int = 1, zone: str | None = None) -> PolicySnapshot:
    """A snapshot whose deployments are ready and lead nowhere."""

    def connect(name: str, reach: UpstreamReach) -> UpstreamClient:
        return cast(UpstreamClient, SimpleNamespace(pulse=Pulse()))

    builder = SnapshotBuilder(clock=clock, rng=random.Random(seed), environment={}, connect=connect, zone=zone)
    made = builder.build(load_policy(text, source="test"), "r1")
    for live in made.deployments.values():
        live.is_ready = True
    return made


@dataclass(frozen=True, slots=True)
class Answered:
    """One request that got its first token."""

    sent_at: float
    deployment: str
    forecast_s: float
    measured_s: float


@dataclass(slots=True)
class Fleet:
    """`offer` requests, change `slowdown` by time, `run`, and check `answered`."""

    num: int = 1
    policy: str = "latency_first"
    shape: EngineShape = field(default_factory=EngineShape)
    reports: bool = True
    is_stream: bool = True
    seed: int = 1
    slowdown: Callable[[str, float], float] = lambda name, now: 1.0
    step_noise: float = 0.05
    price_noise: float = 0.05
    now: float = 0.0
    answered: list[Answered] = field(default_factory=list)
    totals: list[tuple[float, float]] = field(default_factory=list)
    """Forecast and measured time to the last token."""

    def run(self, offers: list[tuple[float, int, int]]) -> Fleet:
        """(instant, prompt tokens, output tokens) each, in order."""
        made = snapshot_of(fleet_policy(self.num, self.policy), lambda: self.now, self.seed)
        _Run(self, made).run(offers)
        for live in made.deployments.values():
            assert live.forecast.num_pending == 0
            assert live.forecast.num_seqs(math.inf) == 0
            assert live.limiter.in_flight == 0
        return self


class _Run:
    def __init__(self, fleet: Fleet, made: PolicySnapshot) -> None:
        self.fleet = fleet
        self.made = made
        self.rng = random.Random(fleet.seed)
        self.engines = {name: EngineModel(fleet.shape) for name in made.deployments}
        self.stepping: set[str] = set()
        self.flights: dict[Job, tuple[str, InFlightRequest, Permit, float]] = {}
        self.waiting: list[tuple[int, int]] = []
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = itertools.count()

    def at(self, when: float, do: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.events, (when, next(self.order), do, arguments))

    def run(self, offers: list[tuple[float, int, int]]) -> None:
        for when, prompt, output in offers:
            self.at(when, self.arrive, prompt, output)
        if self.fleet.reports:
            for tick in range(int(offers[-1][0] / REPORT_S)):
                self.at(tick * REPORT_S, self.report)
        while self.events:
            self.fleet.now, _, do, arguments = heapq.heappop(self.events)
            do(*arguments)

    def arrive(self, prompt: int, output: int) -> None:
        now, rng = self.fleet.now, self.rng
        tokens = max(1, round(prompt * math.exp(rng.gauss(0, self.fleet.price_noise))))
        price = Price(tokens, tokens, 200)
        admission_request = AdmissionRequest(
            self.made.lanes["interactive"], "tenant", price.work_tokens, arrived_at=now
        )
        planned = self.made.router.match("auto", None, {})
        live, _ = self.made.router.pick(planned, frozenset(), "interactive", RoutingRequest(price, admission_request))
        permit = live.limiter.try_acquire(admission_request)
        if permit is None:
            self.waiting.append((prompt, output))
            return
        flight = live.forecast.note_sent(now, price, is_stream=self.fleet.is_stream)
        job = Job(prompt_tokens=prompt, output_tokens=output)
        total_s = flight.forecast_ttft_s + (output - 1) * live.forecast.tpot_s(now)
        self.flights[job] = (live.id, flight, permit, total_s)
        self.engines[live.id].add(job)
        if live.id not in self.stepping:
            self.step(live.id)

    def step(self, name: str) -> None:
        fleet, engine = self.fleet, self.engines[name]
        engine.slowdown = fleet.slowdown(name, fleet.now) * math.exp(self.rng.gauss(0, fleet.step_noise))
        step = engine.begin()
        if step is None:
            self.stepping.discard(name)
            return
        self.stepping.add(name)
        self.at(fleet.now + step.seconds, self.finish, name, step)

    def finish(self, name: str, step: Step) -> None:
        fleet, now = self.fleet, self.fleet.now
        if step.decoding:
            self.made.deployments[name].client.pulse.at = now
        for job in self.engines[name].finish(step):
            deployment, flight, permit, total_s = self.flights[job]
            if job.num_made == 1 and fleet.is_stream:
                flight.first_token(now)
                measured = now - flight.sent_at
                fleet.answered.append(Answered(flight.sent_at, deployment, flight.forecast_ttft_s, measured))
            if job.is_done:
                del self.flights[job]
                flight.ended(now, Usage(job.prompt_tokens, job.num_made))
                fleet.totals.append((total_s, now - flight.sent_at))
                permit.release()
                if self.waiting:
                    self.arrive(*self.waiting.pop(0))
        self.step(name)

    def report(self) -> None:
        """What an engine would publish of itself."""
        shape = self.fleet.shape
        for name, engine in self.engines.items():
            slow = self.fleet.slowdown(name, self.fleet.now)
            room = max(1, shape.step_tokens - engine.num_running)
            rate = room / (shape.step_s(engine.num_running, room) * slow)
            lane = LaneReport(sum(engine.unread_tokens) / rate, rate, engine.num_running, engine.num_waiting)
            self.made.deployments[name].forecast.note_report(
                self.fleet.now, LoadReport(num_running=engine.num_running, lanes={"interactive": lane})
            )


def mixed_offers(
    rate: float, seconds: float, *, seed: int = 3, prompt: float = 900.0, output: float = 120.0
) -> list[tuple[float, int, int]]:
    """Poisson arrivals; short and long prompts mixed, as in recorded conversations."""
    rng, now, offers = random.Random(seed), 0.0, []
    while now < seconds:
        now += rng.expovariate(rate)
        tokens = min(max(int(rng.lognormvariate(math.log(prompt), 0.9)), 8), 12_000)
        offers.append((now, tokens, max(1, int(rng.expovariate(1 / output)))))
    return offers
