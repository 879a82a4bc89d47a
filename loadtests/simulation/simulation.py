"""One gateway in front of modelled engines in virtual time: the requests, their clients and what becomes of them."""

from __future__ import annotations

import asyncio
import io
import json
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gateway.app.app import Gateway
from gateway.app.runtime import Surroundings
from gateway.config.sources import config_of
from gateway.http.asgi import Header
from loadtests.clients.chat_streams import Slo, prompt_text
from loadtests.engines.modelled_engine import EngineShape
from loadtests.engines.virtual_engine import VirtualEngine
from loadtests.harness.measures import percentile
from loadtests.overload.overload import overload_policy
from loadtests.overload.workload import Offer
from loadtests.simulation.faulty_store import FaultyStore
from loadtests.simulation.virtual_client import SimulatedClient, load_report
from loadtests.simulation.virtual_loop import VirtualLoop

_BODY_OVERHEAD = 200
_REPORT_S = 0.1
_DRAIN_S = 60.0
_EPOCH = 1_800_000_000.0
T = TypeVar("T")

_HEAD: list[Header] = [(b"content-type", b"application/json")]


@dataclass(slots=True)
class Outcome:
    """What became of all requests of a simulation; times are virtual."""

    ttft_slo_s: float | None = None
    """Where the target differs from that of the simulation."""
    num_offered: int = 0
    num_good: int = 0
    num_refused: int = 0
    num_failed: int = 0
    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    refused_s: array[float] = field(default_factory=lambda: array("d"))
    """Due to refusal, of those that were refused."""
    wall_s: float = 0.0
    """Real time it took."""
    cpu_s: float = 0.0
    failure: str | None = None
    """What the gateway's log states went wrong first."""

    def summary(self, seconds: float) -> str:
        """For people; `seconds` is the time over which the requests were offered."""
        return (
            f"{self.num_offered:6d} offered, {self.num_good / seconds:6.1f} good per s, {self.num_refused} refused "
            f"(p99 {percentile(self.refused_s, 0.99) * 1e3:.0f} ms), admitted first token p50 "
            f"{percentile(self.ttft_s, 0.5) * 1e3:.0f} p99 {percentile(self.ttft_s, 0.99) * 1e3:.0f} ms, "
            f"{self.num_failed} failed"
        )

    def note(self, call: SimulatedCall, slo: Slo, due_at: float) -> None:
        """Count one request that is over."""
        self.num_offered += 1
        if call.status in (429, 503):
            self.num_refused += 1
            self.refused_s.append(call.ended_at - due_at)
        elif not call.is_whole:
            self.num_failed += 1
        if call.first_at is not None:
            ttft_s = call.first_at - due_at
            self.ttft_s.append(ttft_s)
            tokens = call.offer.output_tokens
            tpot_s = (call.last_at - call.first_at) / (tokens - 1) if tokens > 1 else 0.0
            target_s = slo.ttft_s if self.ttft_slo_s is None else self.ttft_slo_s
            self.num_good += call.is_whole and ttft_s <= target_s and tpot_s <= slo.tpot_s


class SimulatedCall:
    """One client and its line to the edge: `receive`, `send` and the channel that the relay writes to."""

    __slots__ = ("_body", "_clock", "ended_at", "first_at", "is_whole", "keep_alive", "last_at", "offer", "status")

    def __init__(self, offer: Offer, body: bytes, clock: Callable[[], float]) -> None:
        self.offer = offer
        self._body = body
        self._clock = clock
        self.keep_alive = True
        self.status = 0
        self.first_at: float | None = None
        self.last_at = 0.0
        self.ended_at = 0.0
        """When the whole response to a refusal was there."""
        self.is_whole = False

    @property
    def is_gone(self) -> bool:
        """Simulated clients wait."""
        return False

    @property
    def is_stopping(self) -> bool:
        """There is no drain."""
        return False

    def take_body(self) -> bytes:
        """All of it is here."""
        return self._body

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Never called back."""

    def off_gone(self, callback: Callable[[], None]) -> None:
        """See `on_gone`."""

    def respond(self, status: int, headers: Iterable[Header], body: bytes) -> bool:
        """A whole response: a refusal, or an error."""
        self.status = status
        self.ended_at = self._clock()
        return True

    def write(self, data: bytes) -> bool:
        """Body bytes of a stream."""
        self.last_at = self._clock()
        if self.first_at is None:
            self.first_at = self.last_at
        self.is_whole = self.is_whole or data.endswith(b"data: [DONE]\n\n")
        return True

    async def drain(self) -> None:
        """A simulated client has read everything."""

    async def receive(self) -> dict[str, Any]:
        """The request."""
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Any) -> None:
        """The status line, and the end."""
        if message["type"] == "http.response.start":
            self.status = message["status"]

    def scope(self, key: str | None = None) -> dict[str, Any]:
        """As the edge would make it; `key` is the tenant's."""
        proof = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
        return {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [*_HEAD, (b"x-penstock-priority", self.offer.lane.encode()), *proof],
            "client": ("127.0.0.1", 1),
            "extensions": {"penstock": self},
        }


class Simulation:
    """One gateway in front of modelled engines, on the running virtual loop."""

    def __init__(
        self,
        shape: EngineShape,
        num_engines: int,
        slo: Slo,
        folder: Path,
        seed: int,
        *,
        policy: Mapping[str, object] | None = None,
        keys: Mapping[int, str] | None = None,
    ) -> None:
        """`policy` replaces entries of the bench's own; `keys` are the API keys by tenant."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a simulation runs in virtual time"
        self.loop = loop
        self._slo = slo
        self._shape = shape
        self.num_offered = 0
        self.engines: list[VirtualEngine] = []
        urls = [f"http://engine{number}.invalid" for number in range(num_engines)]
        path = folder / "policy.yaml"
        path.write_text(json.dumps({**overload_policy(urls, slo), **(policy or {})}))
        self._keys = keys or {}
        self._log = io.BytesIO()
        self.gateway = Gateway(
            config_of({"policy.document": path, "process.runtime_dir": folder, "telemetry.log.level": "error"}),
            log_stream=self._log,
            around=Surroundings(
                rng=random.Random(seed),
                clock=loop.clock,
                wall=lambda: _EPOCH + loop.time(),
                connect=lambda _id, _reach: self._connect(),
                open_store=lambda: FaultyStore(random.Random(seed)),
            ),
        )
        self.gateway.log.start()
        self.gateway.control.file.load()
        assert self.gateway.snapshot is not None
        self.lives = tuple(self.gateway.snapshot.deployments.values())
        for live in self.lives:
            live.is_ready = True

    def _connect(self) -> SimulatedClient:
        engine = VirtualEngine(self._shape, self.loop)
        self.engines.append(engine)
        return SimulatedClient(engine, self.loop.clock)

    def close(self) -> str | None:
        """The first failure of the gateway itself, if there was one."""
        self.gateway.log.close()
        lines = self._log.getvalue().decode("utf-8", "replace").splitlines()
        return next((line for line in lines if "failed" in line), None)

    def forecast_errors(self, shares: Sequence[float]) -> list[tuple[float, float]]:
        """(share, the relative error that it of the last forecasts of first tokens stayed within); of several engines
        the worst."""
        return [(share, max(live.forecast.error.quantile(share) or 0.0 for live in self.lives)) for share in shares]

    def publish_loads(self) -> None:
        """Every engine reports now, and again and again."""
        now = self.loop.time()
        for live, engine in zip(self.lives, self.engines, strict=True):
            live.forecast.note_report(now, load_report(engine, self._shape))
        self.loop.call_later(_REPORT_S, self.publish_loads)

    async def run(self, offers: Iterable[Offer], *, by_tenant: Mapping[int, Outcome] = MappingProxyType({})) -> Outcome:
        """Offer all and wait for the last answer; what becomes of the tenants that `by_tenant` has an entry for is
        counted there, and all others together."""
        outcome = Outcome()
        under_way: set[asyncio.Task[None]] = set()
        started_at, wall_before, cpu_before = self.loop.time(), time.perf_counter(), time.process_time()
        for offer in offers:
            due_at = started_at + offer.at_s
            if due_at > self.loop.time():
                await asyncio.sleep(due_at - self.loop.time())
            whose = by_tenant.get(offer.tenant, outcome)
            task = self.loop.create_task(self.serve(offer, due_at, whose))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        if under_way:
            await asyncio.wait(under_way, timeout=_DRAIN_S)
        outcome.wall_s = time.perf_counter() - wall_before
        outcome.cpu_s = time.process_time() - cpu_before
        return outcome

    async def serve(self, offer: Offer, due_at: float, outcome: Outcome) -> None:
        """Serve one request to its end."""
        self.num_offered += 1
        call = SimulatedCall(offer, body_of(offer, self.num_offered), self.loop.clock)
        await self.gateway.pipeline(call.scope(self._keys.get(offer.tenant)), call.receive, call.send)
        outcome.note(call, self._slo, due_at)


def body_of(offer: Offer, number: int) -> bytes:
    """The same bytes that the client of the real benches sends."""
    fill = max(1, offer.prompt_tokens * 4 - _BODY_OVERHEAD)
    return (
        b'{"model": "scripted", "messages": [{"role": "user", "content": "%b"}], "max_tokens": 512, "stream": true, '
        b'"user": "script:output_tokens=%d,id=0"}' % (prompt_text(offer, fill, number).encode(), offer.output_tokens)
    )


def in_virtual_time(main: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    """Run a simulation in a folder of its own, on a loop whose clock jumps."""
    with tempfile.TemporaryDirectory(prefix="pstk") as folder, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(Path(folder)))
