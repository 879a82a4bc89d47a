"""Clients that leave, against the real engine behind the gateway.

Probes, one at a time: a request is brought into a known place (waiting for a row, prefill, decode; streamed or not),
its connection is closed, and the engine's load feed is read until the engine holds no more than before. Then a storm:
many clients at once, more than the gateway has permits and the engine has rows, leave at random moments. At the end
everything must be free, the processes must have no more open files than at the start, and the next request is served.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.clients.engine_probe import EngineLoad, read_load
from loadtests.clients.http_client import Address, Exchange, LoadConnection, clock, request_bytes
from loadtests.harness.card import Card
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import Process, Workbench, raise_fd_limit
from loadtests.harness.stack import Server, chat_body, metric, start_engine, start_gateway

_NUM_ROWS = 8
_NUM_PERMITS = 24
_NUM_CLIENTS = 40
_SETTLE_S = 15.0
_ONE_PROBE_S = 1.2  # the gateway calls its upstreams once a second whether they are ready
_IDLE_S = 4.5  # longer than the gateway keeps idle connections over TCP
_POLL_S = 0.001
_GIVE_UP_S = 5.0
_STATES = ("queued", "prefill", "decode")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--cancels", type=int, default=10_000, help="in the storm (default %(default)s)")
    parser.add_argument("--probes", type=int, default=120, help="timed one by one (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time, whatever the counts")
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-small"), help="folder")
    parser.add_argument("--seed", type=int, default=1, help="of all choices (default %(default)s)")


class Prompts:
    """Requests whose answers last until someone leaves."""

    def __init__(self, model_dir: Path, rng: random.Random) -> None:
        self._rng = rng
        config = json.loads((model_dir / "generation_config.json").read_text())
        ends = config["eos_token_id"]
        self._bias = {str(token): -100 for token in (ends if isinstance(ends, list) else [ends])}

    def request(self, *, is_long: bool, stream: bool, max_tokens: int = 1000) -> bytes:
        """A prompt nobody sent before, so that no cached prefix shortens its prefill."""
        words = " ".join(str(self._rng.randrange(10_000)) for _ in range(600 if is_long else 8))
        fields = {"max_tokens": max_tokens, "stream": stream, "logit_bias": self._bias}
        return request_bytes("POST", "/v1/chat/completions", chat_body("bench", words, **fields))


@dataclass(slots=True)
class _Tally:
    free_after_s: dict[str, list[float]] = field(default_factory=lambda: {state: [] for state in _STATES})
    num_stuck: int = 0
    num_missed: int = 0
    """Probes whose request was not in the wanted place when its client left."""
    num_cancels: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    """Of answers that came before their client had left."""


class _Client:
    """One request that will be left."""

    def __init__(self, connection: LoadConnection, request: bytes) -> None:
        self.connection = connection
        self.num_reads = 0
        self.ended: Exchange | None = None
        connection.start(request, self._on_end, self._on_piece)

    def _on_piece(self, now: float, data: bytes) -> None:
        self.num_reads += 1

    def _on_end(self, exchange: Exchange) -> None:
        self.ended = exchange

    def leave(self) -> None:
        """Close the connection, response or not."""
        self.connection.close()


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    rng = random.Random(options.seed)
    async with Workbench() as bench:
        flags = ("--max-num-seqs", str(_NUM_ROWS), "--num-threads", "1", "--log-level", "warning")
        engine = await start_engine(bench, options.model.resolve(), *flags)
        gateway = await start_gateway(bench, engine.address.url, "bench", max_in_flight=_NUM_PERMITS)
        prompts = Prompts(options.model, rng)
        await asyncio.sleep(_ONE_PROBE_S)  # so that the probe's connection and the load feed's are both there
        fds_before = await _settled_fds(_ONE_PROBE_S, gateway.process, engine.process)
        await _normal_request(gateway.address)
        tally = _Tally()
        started_at = clock()
        limit_s = options.seconds or float("inf")
        await _probe_idle(gateway, engine, prompts, tally, options.probes * 2 // 3, started_at + limit_s * 0.3)
        await _probe_full(gateway, engine, prompts, tally, options.probes // 3, started_at + limit_s * 0.5)
        await _storm(gateway.address, prompts, rng, tally, options.cancels, started_at + limit_s)
        wall_s = clock() - started_at
        leaks = await _find_leaks(gateway, engine)
        aborts = {state: await _aborts(engine.address, state) for state in _STATES}
        try:
            await _normal_request(gateway.address)
            problem = None
        except OSError as error:
            problem = f"the request after the storm: {error}"
        fds_after = await _settled_fds(_IDLE_S, gateway.process, engine.process)
        leaks["file_descriptors"] = max(0, fds_after - fds_before)
        lost_sight = [line for line in gateway.process.json_lines() if line.get("event") == "deployment_not_ready"]
        notes = [f"the gateway took the engine for not ready: {line.get('reason')}" for line in lost_sight[:5]]
    return _card(options, tally, leaks, aborts, wall_s, notes, problem)


# Probes


async def _probe_idle(
    gateway: Server, engine: Server, prompts: Prompts, tally: _Tally, count: int, until: float
) -> None:
    """Probes in prefill and decode, against an engine that has nothing else to do."""
    for number in range(count):
        if clock() >= until:
            return
        await _probe(gateway, engine, prompts, tally, ("prefill", "decode")[number % 2], stream=number % 4 < 2)


async def _probe_full(
    gateway: Server, engine: Server, prompts: Prompts, tally: _Tally, count: int, until: float
) -> None:
    """Probes that wait for a row, against an engine whose rows are all taken."""
    fillers = [await _start(gateway.address, prompts.request(is_long=False, stream=True)) for _ in range(_NUM_ROWS)]
    for number in range(count):
        if clock() >= until:
            break
        if any(filler.ended for filler in fillers):
            fillers = await _refill(gateway.address, prompts, fillers)
        await _probe(gateway, engine, prompts, tally, "queued", stream=number % 2 == 0)
    for filler in fillers:
        filler.leave()
    await _wait_for(engine.address, lambda load: load.is_idle, _SETTLE_S)


async def _refill(address: Address, prompts: Prompts, fillers: list[_Client]) -> list[_Client]:
    for filler in fillers:
        filler.leave()
    return [await _start(address, prompts.request(is_long=False, stream=True)) for _ in fillers]


async def _probe(gateway: Server, engine: Server, prompts: Prompts, tally: _Tally, state: str, *, stream: bool) -> None:
    """Bring one request into a place, leave, and time until the engine holds nothing of it."""
    if state == "queued":
        await _wait_for(engine.address, lambda load: load.num_running == _NUM_ROWS and not load.num_waiting, 2.0)
    before = await read_load(engine.address)
    client = await _start(gateway.address, prompts.request(is_long=state == "prefill", stream=stream))
    arrived = await _wait_for(engine.address, lambda load: load.num_open > before.num_open, _GIVE_UP_S)
    if state == "decode":
        await _reach_decode(client, stream=stream)
    if arrived is None or client.ended is not None:
        tally.num_missed += 1
        client.leave()
        return
    left_at = clock()
    client.leave()
    tally.num_cancels += 1
    freed = await _wait_for(engine.address, lambda load: _is_free(load, before, state), _GIVE_UP_S)
    if freed is None:
        tally.num_stuck += 1
    else:
        tally.free_after_s[state].append(freed - left_at)


async def _reach_decode(client: _Client, *, stream: bool) -> None:
    """Until text flows; without a stream that cannot be seen from outside, so give a short prompt some time."""
    if not stream:
        await asyncio.sleep(0.06)
        return
    deadline = clock() + _GIVE_UP_S
    while client.num_reads < 3 and client.ended is None and clock() < deadline:
        await asyncio.sleep(_POLL_S)


def _is_free(load: EngineLoad, before: EngineLoad, state: str) -> bool:
    if load.num_open > before.num_open or load.num_waiting > before.num_waiting:
        return False
    # Beside the fillers, whose own blocks grow all the time, only an engine that was idle can be compared in blocks.
    return state == "queued" or load.is_idle


async def _wait_for(address: Address, is_reached: Callable[[EngineLoad], bool], limit_s: float) -> float | None:
    """The instant at which the load first satisfies the predicate, or None at the limit."""
    deadline = clock() + limit_s
    while clock() < deadline:
        load = await read_load(address)
        if is_reached(load):
            return clock()
        await asyncio.sleep(_POLL_S)
    return None


# Storm


async def _storm(
    address: Address, prompts: Prompts, rng: random.Random, tally: _Tally, count: int, until: float
) -> None:
    target = tally.num_cancels + count

    async def client() -> None:
        while tally.num_cancels < target and clock() < until:
            one = await _start(address, prompts.request(is_long=rng.random() < 0.3, stream=rng.random() < 0.5))
            # From "at once" to "in the middle of the answer"; behind a full engine most of it is waiting.
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.01, 0.05, 0.2)) * rng.random() * 2)
            if one.ended is None:
                tally.num_cancels += 1
            else:
                tally.statuses[one.ended.status] += 1
            one.leave()

    await asyncio.gather(*(client() for _ in range(_NUM_CLIENTS)))


async def _start(address: Address, request: bytes) -> _Client:
    return _Client(await LoadConnection.open(address), request)


# What is left


async def _normal_request(address: Address) -> None:
    """One request as any client sends it. Raises OSError unless it is answered whole."""
    body = chat_body("bench", "hello", max_tokens=8)
    connection = await LoadConnection.open(address, keep_body=True)
    exchange = await asyncio.wait_for(connection.exchange(request_bytes("POST", "/v1/chat/completions", body)), 30.0)
    connection.close()
    if not exchange.is_ok:
        raise OSError(exchange.error or f"status {exchange.status}: {connection.scanner.content[:200]!r}")
    if json.loads(connection.scanner.content)["choices"][0]["finish_reason"] not in ("stop", "length"):
        raise OSError("the answer has no proper end")


async def _find_leaks(gateway: Server, engine: Server) -> dict[str, int]:
    """What is still held although every client has left; nothing, or what remains after some patience."""
    deadline = clock() + _SETTLE_S
    while True:
        load = await read_load(engine.address)
        held = {
            "rows": load.num_running,
            "waiting": load.num_waiting,
            "requests": load.num_open,
            "blocks": load.num_blocks_held + load.num_blocks_leaked,
            "permits": int(await metric(gateway.admin, "penstock_in_flight")),
            "queued": int(await metric(gateway.admin, "penstock_queue_depth")),
        }
        if not any(held.values()) or clock() > deadline:
            return held
        await asyncio.sleep(0.1)


async def _aborts(address: Address, state: str) -> int:
    return int(await metric(address, f'engine_aborts_total{{state="{state}"}}'))


async def _settled_fds(seconds: float, *processes: Process) -> int:
    """Fewest open files seen in this time."""
    fewest = 1 << 30
    until = clock() + seconds
    while clock() < until:
        fewest = min(fewest, sum(process.num_fds() for process in processes))
        await asyncio.sleep(0.1)
    return fewest


def _card(
    options: argparse.Namespace,
    tally: _Tally,
    leaks: dict[str, int],
    aborts: dict[str, int],
    wall_s: float,
    notes: list[str],
    problem: str | None,
) -> Card:
    everything = [sample for samples in tally.free_after_s.values() for sample in samples]
    free = Latencies.of(everything)
    leaked = sum(leaks.values())
    held = ", ".join(f"{count} {name}" for name, count in leaks.items() if count)
    if leaked:
        problem = f"still held at the end: {held}"
    elif tally.num_stuck:
        problem = f"{tally.num_stuck} cancelled requests were not freed within {_GIVE_UP_S:g} s"
    by_state = [f"left in {state:<8} {Latencies.of(samples)}" for state, samples in tally.free_after_s.items()]
    answered = ", ".join(f"{count} times {status}" for status, count in sorted(tally.statuses.items())) or "none"
    return Card(
        bench="cancel",
        arrivals=f"probes one at a time, then {_NUM_CLIENTS} clients in a closed loop, seed {options.seed}",
        results={
            "cancel_to_free_p50_ms": free.p50_ms,
            "cancel_to_free_p99_ms": free.p99_ms,
            "leaked": leaked,
            "cancels": tally.num_cancels,
            "probes": free.num_samples,
            "stuck": tally.num_stuck,
            **{f"aborts_{state}": count for state, count in aborts.items()},
            "wall_s": wall_s,
            "model": options.model.name,
        },
        notes=(
            *by_state,
            f"probes that missed their stage: {tally.num_missed}",
            f"answered before leaving: {answered}",
        ),
        failed=problem,
    )
