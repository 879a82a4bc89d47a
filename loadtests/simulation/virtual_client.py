"""Modelled engines behind the gateway's own client interface, on one virtual clock: no socket, the same bytes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import msgspec

from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import ConnectionPool, PoolLimits
from loadtests.engines.engine_server import usage_of
from loadtests.engines.modelled_engine import USUAL_OUTPUT_TOKENS, EngineShape, lane_work
from loadtests.engines.virtual_engine import VirtualEngine, VirtualJob

_BYTES_PER_TOKEN = 4
_OUTPUT = re.compile(rb"script:output_tokens=(\d+)")
_MAX_BUFFER_BYTES = 64 * 1024
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


def _event(delta: dict[str, str], finish_reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    event = {"id": "chatcmpl-simulated", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    return b"data: " + msgspec.json.encode({**event, "choices": [choice], **more}) + b"\n\n"


_FIRST = _event({"role": "assistant", "content": "x "})


class _Source:
    """The connection of one simulated response."""

    def __init__(self, engine: VirtualEngine) -> None:
        self._engine = engine
        self.job: VirtualJob | None = None

    def pause(self) -> None:
        """A simulated client reads at once."""

    def resume(self) -> None:
        """See `pause`."""

    def abandon(self) -> None:
        """The row is free at once."""
        if self.job is not None:
            self._engine.remove(self.job)
            self.job = None

    def distrust(self) -> None:
        """Each simulated response has a connection of its own."""


class _EnginePulse(Pulse):
    """What the pieces of every answer would have shown: the end of the engine's last step."""

    __slots__ = ("_engine",)

    def __init__(self, engine: VirtualEngine) -> None:
        self._engine = engine

    @property
    def at(self) -> float:
        return self._engine.stepped_at

    @at.setter
    def at(self, now: float) -> None:
        """The engine knows."""


class SimulatedClient(UpstreamClient):
    """Sends to a modelled engine; time limits of the exchange are not enforced, for the model never hangs."""

    def __init__(self, engine: VirtualEngine, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            Target.parse("http://simulated"), ConnectionPool("simulated", PoolLimits(), clock), clock=clock
        )
        self.engine = engine
        self.pulse = _EnginePulse(engine)

    async def send(
        self,
        request: UpstreamRequest,
        timeouts: ExchangeTimeouts,
        on_sent: Callable[[UpstreamResponse], None] | None = None,
    ) -> UpstreamResponse:
        """The response, at the instant of its first token."""
        source = _Source(self.engine)
        loop = asyncio.get_running_loop()
        response = UpstreamResponse(source, loop, connect_s=None, max_buffer_bytes=_MAX_BUFFER_BYTES)
        body = request.body
        found = _OUTPUT.search(body, max(0, len(body) - 200)) or _OUTPUT.search(body)
        prompt = max(1, len(body) // _BYTES_PER_TOKEN)
        output = int(found.group(1)) if found else USUAL_OUTPUT_TOKENS
        if on_sent is not None:
            on_sent(response)

        def end() -> None:
            source.job = None
            usage = usage_of(prompt, output)
            response.on_piece(_event({}, "stop", usage=usage) + b"data: [DONE]\n\n")
            response.on_end()

        def begin() -> None:
            response.on_head(200, _HEADERS)
            response.on_piece(_FIRST)
            if output <= 1:
                end()

        source.job = VirtualJob(prompt, output, on_first=begin, on_last=end)
        self.engine.add(source.job)
        await response.wait_head()
        return response


def load_report(engine: VirtualEngine, shape: EngineShape) -> LoadReport:
    """What the engine would publish now."""
    model = engine.model
    unread = model.unread_tokens
    short, long = (
        LaneReport(forecast_wait_s=work.wait_s, prefill_tokens_per_s=work.prefill_tokens_per_s)
        for work in lane_work(shape, model.num_running, model.num_waiting, unread, model.slowdown)
    )
    return LoadReport(
        num_running=model.num_running,
        num_waiting=model.num_waiting,
        max_num_seqs=shape.max_num_seqs,
        max_num_batched_tokens=shape.step_tokens,
        waiting_prompt_tokens=sum(unread),
        forecast_wait_s=short.forecast_wait_s,
        lanes={"interactive": short, "long": long, "batch": long},
    )
