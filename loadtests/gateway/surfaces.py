"""Cost of Responses and Messages beside chat completions, for a request and for a stream event.

One connection, one request at a time: blocks of requests of each API through the same gateway in turn, so that all see
the same machine. The upstream speaks chat completions and does no work; every answer is translated once.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, field
from typing import Any, Final

from loadtests.clients.http_client import LoadConnection, clock, request_bytes
from loadtests.harness.card import Card
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, Server, start_gateway, start_upstream

_BLOCK: Final = 50
_NUM_EVENTS: Final = 64
_TEXT: Final = "x" * 320
_PATHS: Final = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the whole run (default %(default)s)")


@dataclass(slots=True)
class _Surface:
    """Requests of one API and form, and what they took."""

    request: bytes
    latencies_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    num_failed: int = 0

    @property
    def cpu_us(self) -> float:
        """CPU time of the gateway for one request."""
        return self.cpu_s * 1e6 / max(1, len(self.latencies_s))

    @property
    def p50_ms(self) -> float:
        """Median of the latencies."""
        return Latencies.of(self.latencies_s).p50_ms


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    if other_cores is not None:
        os.sched_setaffinity(0, other_cores)
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(num_chunks=_NUM_EVENTS), other_cores)
        gateway = await start_gateway(bench, upstream.admin.url, "scripted", cores=gateway_cores)
        plain = await _in_turn(gateway, options.seconds / 2, is_stream=False)
        streams = await _in_turn(gateway, options.seconds / 2, is_stream=True)
    return _card(plain, streams)


async def _in_turn(gateway: Server, seconds: float, *, is_stream: bool) -> dict[str, _Surface]:
    """Send blocks of each API in turn; the first block of each warms it and does not count."""
    surfaces = {name: _Surface(_request(name, is_stream=is_stream)) for name in _PATHS}
    connection = await LoadConnection.open(gateway.address)
    for surface in surfaces.values():
        await _send_block(connection, gateway, _Surface(surface.request))
    stop_at = clock() + seconds
    while clock() < stop_at:
        for surface in surfaces.values():
            await _send_block(connection, gateway, surface)
    connection.close()
    return surfaces


async def _send_block(connection: LoadConnection, gateway: Server, surface: _Surface) -> None:
    before = gateway.process.cpu_s()
    for _ in range(_BLOCK):
        exchange = await connection.exchange(surface.request)
        if exchange.is_ok:
            surface.latencies_s.append(exchange.ended_at - exchange.sent_at)
        else:
            surface.num_failed += 1
    surface.cpu_s += gateway.process.cpu_s() - before


def _request(name: str, *, is_stream: bool) -> bytes:
    message = {"role": "user", "content": _TEXT}
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"messages": [message], "max_tokens": 512},
        "responses": {"input": [message], "max_output_tokens": 512},
        "messages": {"messages": [message], "max_tokens": 512},
    }
    body = {"model": "scripted", **bodies[name], **({"stream": True} if is_stream else {})}
    return request_bytes("POST", _PATHS[name], json.dumps(body).encode())


def _card(plain: dict[str, _Surface], streams: dict[str, _Surface]) -> Card:
    results: dict[str, float] = {"chat_p50_ms": plain["chat"].p50_ms, "chat_cpu_us": plain["chat"].cpu_us}
    for name in ("responses", "messages"):
        results[f"{name}_added_p50_ms"] = plain[name].p50_ms - plain["chat"].p50_ms
        results[f"{name}_added_cpu_us"] = plain[name].cpu_us - plain["chat"].cpu_us
        added_us = streams[name].cpu_us - streams["chat"].cpu_us
        results[f"{name}_added_us_per_event"] = added_us / _NUM_EVENTS
    results["failed_requests"] = sum(one.num_failed for one in (*plain.values(), *streams.values()))
    return Card(
        bench="surfaces",
        arrivals=f"one connection, blocks of {_BLOCK} requests of each API in turn",
        results=results,
        notes=(f"an event: CPU of a stream of {_NUM_EVENTS}, less that of chat completions, over its events",),
    )
