"""One seed of the fault simulation: the gateway among clients, upstreams and a store that all fail at random.

Everything from the clients' bytes to the upstreams' is the code that serves; sockets, clock and store are simulated.
A seeded random source decides what is lost, late, out of order or cancelled. Afterwards nothing may be held, and nobody
may have received a byte that is not theirs.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.app.app import Gateway
from gateway.app.runtime import Surroundings
from gateway.config.sources import config_of
from gateway.deployments.live import LiveDeployment
from gateway.policies.policy_file import PolicyRevision
from loadtests.simulation.faulty_client import FaultyClient, SentRequest, draw_request
from loadtests.simulation.faulty_store import FaultyStore
from loadtests.simulation.faulty_upstream import FaultyUpstream
from loadtests.simulation.virtual_network import NetworkedLoop, VirtualNetwork, VirtualTransport, Weather

TENANTS: Final = ("ant", "bee", "cat")
_FIRST_PORT: Final = 9000
_MAX_QUEUE: Final = 4
_SETTLE_S: Final = 8.0
"""Time between the last client and the checks.

It exceeds the delay of late bytes and closes, the wait of a probe, and the wait for the body of a silent client.
"""
_RELEASE_S: Final = 0.02
"""Longest time from a client's end to that of the work for it; the loop itself takes none."""
_RETRY_RESERVE: Final = 10
_RETRY_RATIO: Final = 0.1
_HEDGE_RATIO: Final = 0.1


@dataclass(slots=True)
class Verdict:
    """What came of one seed."""

    seed: int
    num_requests: int = 0
    num_attempts: int = 0
    num_bytes: int = 0
    """Bytes that clients received and that were searched for others' marks."""
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    """Of everything that clients received: equal when a seed runs again."""


def _policy(num_deployments: int, permits: int) -> dict[str, object]:
    names = [f"d{number}" for number in range(num_deployments)]
    limits: list[dict[str, object]] = [{"requests_per_min": 600, "tokens_per_min": 20_000}, {"max_in_flight": 4}, {}]
    keys = [{"id": "k", "sha256": hashlib.sha256(_key(tenant).encode()).hexdigest()} for tenant in TENANTS]
    timeouts = {"connect_ms": 400, "first_token_ms": 2000, "inter_token_ms": 1000, "total_ms": 6000}
    return {
        "schema_version": 1,
        "deployments": [
            {"id": name, "url": f"http://127.0.0.1:{_FIRST_PORT + number}", "model": "m",
             "limits": {"max_in_flight": permits}}
            for number, name in enumerate(names)
        ],
        "lanes": [{"id": "interactive", "weight": 8, "max_queue": _MAX_QUEUE, "on_overload": ["shed"]}],
        "tenants": [
            {"id": tenant, "keys": [key], "limits": limit}
            for tenant, key, limit in zip(TENANTS, keys, limits, strict=True)
        ],
        "routes": [
            {"id": "main", "match": {"models": ["auto"]}, "cache": {"mode": "exact", "scope": "tenant", "ttl_s": 60},
             "select": {"policy": "least_in_flight", "candidates": names, "hedge": {"max_ratio": _HEDGE_RATIO}},
             "timeouts": timeouts}
        ],
    }  # fmt: skip


def _key(tenant: str) -> str:
    return f"psk-simulated-{tenant}"


class FaultRun:
    """A gateway that is built once; `run` is for a process of its own, which it leaves used up."""

    def __init__(self, folder: Path) -> None:
        """Build the gateway with a folder for its files."""
        self._loop = NetworkedLoop()
        self._rng = random.Random(0)
        self._log = io.BytesIO()
        self._socket = str(folder / "p.sock")
        path = folder / "policy.yaml"
        path.write_text(json.dumps(_policy(3, 3)))
        settings = {
            "policy.document": path, "process.runtime_dir": folder, "telemetry.log.level": "error",
            "public.listen": f"unix:{self._socket}", "admin.listen": f"unix:{folder}/a.sock",
        }  # fmt: skip
        self._gateway = Gateway(
            config_of(settings),
            log_stream=self._log,
            around=Surroundings(
                rng=self._rng,
                clock=self._loop.clock,
                wall=self._loop.clock,
                open_store=lambda: FaultyStore(self._rng),
            ),
        )
        self._revisions: list[PolicyRevision] = []
        for policy in (_policy(2, 2), _policy(3, 3)):
            path.write_text(json.dumps(policy))
            self._revisions.append(self._loop.run_until_complete(self._load()))
        self._loop.run_until_complete(self._gateway.server.start())

    async def _load(self) -> PolicyRevision:
        return self._gateway.control.file.load()

    def close(self) -> None:
        """Give up what the gateway holds in this process."""
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self._gateway.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def run(self, seed: int, num_requests: int) -> Verdict:
        """Run one seed."""
        self._rng.seed(seed)
        return self._loop.run_until_complete(_Course(self._gateway, self._parts(seed), seed, num_requests).run())

    def _parts(self, seed: int) -> _Parts:
        rng = random.Random(f"faults:{seed}")
        calm = rng.random() < 0.2
        weather = Weather(refused_ratio=0, hole_ratio=0, silent_ratio=0) if calm else Weather()
        self._loop.network = VirtualNetwork(rng, weather)
        upstreams = [FaultyUpstream(f"d{number}", rng) for number in range(3)]
        for number, upstream in enumerate(upstreams):
            self._loop.network.listeners[_FIRST_PORT + number] = upstream
        return _Parts(rng, self._loop, upstreams, self._socket, self._revisions, self._log)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a course is made of, beside the gateway."""

    rng: random.Random
    loop: NetworkedLoop
    upstreams: list[FaultyUpstream]
    socket: str
    revisions: list[PolicyRevision]
    log: io.BytesIO


class _Course:
    """The events of one seed and the checks behind them."""

    def __init__(self, gateway: Gateway, parts: _Parts, seed: int, num_requests: int) -> None:
        self._gateway = gateway
        self._parts = parts
        self._rng = parts.rng
        self._num_requests = num_requests
        self._sent: list[tuple[SentRequest, VirtualTransport]] = []
        """Requests, and the gateway's end of each one's connection."""
        self._numbers = dict.fromkeys(TENANTS, 0)
        self._lives: set[LiveDeployment] = set()
        self._verdict = Verdict(seed)

    async def run(self) -> Verdict:
        """All clients come and go; then nothing may be left."""
        changes = asyncio.ensure_future(self._changes())
        background = [asyncio.ensure_future(work) for work in self._background()]
        usual = asyncio.all_tasks()
        self._wake_all()
        await asyncio.gather(*(self._client(at_s) for at_s in self._arrivals()))
        changes.cancel()
        await asyncio.sleep(_SETTLE_S)
        for task in background:
            task.cancel()
        await asyncio.gather(changes, *background, return_exceptions=True)
        await asyncio.sleep(1.0)  # an exchange with the store may have been under way
        self._check(len(asyncio.all_tasks() - usual))
        return self._verdict

    def _background(self) -> Iterator[Any]:
        """What `Gateway.start` would spawn, of that which requests depend on."""
        yield self._gateway._quotas.run()
        yield self._gateway._liveness.run()
        yield self._gateway._stores.limits.watch()

    def _arrivals(self) -> list[float]:
        """When each client connects, for as many requests as wanted."""
        span_s = self._num_requests / self._rng.choice((3.0, 10.0, 40.0, 200.0))
        return sorted(self._rng.random() * span_s for _ in range(max(1, self._num_requests // 2)))

    async def _changes(self) -> None:
        """Policies change and deployments turn not ready, and come back with the next probe."""
        rng = self._rng
        while True:
            await asyncio.sleep(rng.random() * 2)
            if rng.random() < 0.15:
                self._gateway._take_revision(rng.choice(self._parts.revisions))
            elif rng.random() < 0.3:
                rng.choice(self._ready()).is_ready = False
            await asyncio.sleep(rng.random())
            self._wake_all()

    def _ready(self) -> list[LiveDeployment]:
        assert self._gateway.snapshot is not None
        return list(self._gateway.snapshot.deployments.values())

    def _wake_all(self) -> None:
        for live in self._ready():
            live.is_ready = True
            self._lives.add(live)

    async def _client(self, at_s: float) -> None:
        await asyncio.sleep(at_s)
        network = self._parts.loop.network
        assert network is not None
        tenant = self._rng.choice(TENANTS)
        client = FaultyClient()
        _, far = network.join(client, self._parts.loop.served[self._parts.socket]())
        for _ in range(self._rng.randint(1, 3)):
            if not client.is_open or client.transport.is_closing() or len(self._sent) >= self._num_requests:
                break
            sent = draw_request(self._rng, tenant, self._numbers[tenant])
            self._numbers[tenant] += 1
            self._sent.append((sent, far))
            self._check_queue()
            await client.send(sent, _key(tenant))
            await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.01)))
        client.transport.close()

    # Checks

    def _complain(self, text: str) -> None:
        self._verdict.problems.append(text)

    def _check_queue(self) -> None:
        assert self._gateway.snapshot is not None
        for lane in self._gateway.snapshot.lanes.values():
            if lane.num_waiting > _MAX_QUEUE:
                self._complain(f"{lane.num_waiting} requests wait where {_MAX_QUEUE} may")

    def _check(self, num_tasks: int) -> None:
        verdict, digest = self._verdict, hashlib.sha256()
        for sent, _ in self._sent:
            verdict.problems += sent.problems()
            verdict.num_bytes += len(sent.data)
            digest.update(sent.canary.encode() + b"%d" % len(sent.data))
        verdict.digest = digest.hexdigest()[:16]
        verdict.num_requests = len(self._sent)
        verdict.num_attempts = sum(len(upstream.received) for upstream in self._parts.upstreams)
        if num_tasks:
            self._complain(f"{num_tasks} tasks are left")
        self._check_held()
        self._check_retries()
        self._check_releases()
        self._gateway.log.flush()
        lines = self._parts.log.getvalue().decode().splitlines()
        verdict.problems += [line for line in lines if '"policy_refused"' not in line][:3]

    def _check_held(self) -> None:
        """Permits, connections, bodies and quotas are back."""
        for live in self._lives:
            pool = live.client.snapshot()
            held = {
                "permits": live.in_flight, "waiting": live.limiter.num_waiting, "busy connections": pool.num_busy,
                "connects": pool.num_connecting,
            }  # fmt: skip
            for name, count in held.items():
                if count:
                    self._complain(f"{live.id}: {count} {name} at the end")
            for part in (live.limiter, live.client, live.health):
                try:
                    part.check_integrity()
                except AssertionError as error:
                    self._complain(f"{live.id}: {error}")
        self._gateway.bodies.check_integrity()
        if self._gateway.bodies.used_bytes:
            self._complain(f"{self._gateway.bodies.used_bytes} bytes of bodies at the end")
        for quota in self._gateway._quotas:
            if quota.num_in_flight:
                self._complain(f"{quota.num_in_flight} requests of a tenant's quota at the end")
        open_ends = [far for _, far in self._sent if not far.is_lost and far.pieces_left is None]
        if open_ends:
            self._complain(f"{len(open_ends)} connections of clients at the end")

    def _check_retries(self) -> None:
        """Second attempts stay within their budgets."""
        num = len(self._sent)
        closed = sum(one.fault == "close_behind" for one in self._received())
        hedges = _HEDGE_RATIO * num
        allowed = num + _RETRY_RESERVE + _RETRY_RATIO * num + hedges + closed + self._num_fresh_losses()
        if self._verdict.num_attempts > allowed:
            self._complain(f"{self._verdict.num_attempts} attempts for {num} requests")

    def _num_fresh_losses(self) -> int:
        """Requests that met a connection which was ending under them: each may be sent once more."""
        return sum(one.transport.closed_at is not None and not one.is_over for one in self._received())

    def _received(self) -> list[Any]:
        return [one for upstream in self._parts.upstreams for one in upstream.received]

    def _check_releases(self) -> None:
        """No work for a client goes on behind its end, unless others wait for the same answer."""
        alone = {sent.canary for sent, _ in self._sent}
        seen: set[str] = set()
        for sent, _ in self._sent:
            if sent.canary in seen:
                alone.discard(sent.canary)
            seen.add(sent.canary)
        ends = {sent.canary: far.closed_at for sent, far in self._sent if sent.canary in alone}
        for one in self._received():
            gone_at, closed_at = ends.get(one.canary), one.transport.peer.closed_at
            if gone_at is None or one.is_over or one.began_at > gone_at + 1.0:
                continue
            if closed_at is None or closed_at > gone_at + _RELEASE_S:
                self._complain(f"{one.canary} ended at {gone_at:.3f}, its work at {closed_at}")
