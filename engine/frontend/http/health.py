"""Small answers about the engine itself: health, start-up, models, metrics, and the feed of its load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from engine.frontend.core_client.service import EngineService
from engine.frontend.request.asgi import (
    EVENT_STREAM,
    Client,
    Receive,
    Send,
    send_answer,
    start_answer,
    watched_client,
)
from engine.frontend.request.errors import ApiError
from engine.protocol import Ready

LOAD_PERIOD_S = 0.1


class EngineProbes:
    """Serves everything but completions."""

    def __init__(self, service: EngineService, unix_time: Callable[[], float]) -> None:
        self._service = service
        self._created = int(unix_time())

    async def livez(self, send: Send, echo: dict[str, str]) -> None:
        """200 while the event loop turns."""
        await send_answer(send, 200, b'{"alive":true}', echo)

    async def readyz(self, send: Send, echo: dict[str, str]) -> None:
        """200 when requests are served, else 503; both say the state and the phases so far."""
        status = 200 if self._service.is_ready else 503
        await send_answer(send, status, msgspec.json.encode(self._state()), echo)

    async def startupz(self, send: Send, echo: dict[str, str]) -> None:
        """200 once the core is ready, else 503; the phases of start-up with their seconds."""
        status = 200 if self._service.link.ready is not None else 503
        await send_answer(send, status, msgspec.json.encode(self._state()), echo)

    async def models(self, send: Send, echo: dict[str, str]) -> None:
        """The list of the one model."""
        await send_answer(send, 200, msgspec.json.encode({"object": "list", "data": [self._model()]}), echo)

    async def model(self, model_id: str, send: Send, echo: dict[str, str]) -> None:
        """The one model. Raises ApiError (404)."""
        if model_id != self._service.config.model_name:
            message = f"The model {model_id[:128]!r} does not exist here."
            raise ApiError(404, message, param="model", code="model_not_found")
        await send_answer(send, 200, msgspec.json.encode(self._model()), echo)

    async def metrics(self, send: Send, echo: dict[str, str]) -> None:
        """All metrics in Prometheus's text format."""
        body = generate_latest(self._service.metrics.registry)
        await send_answer(send, 200, body, echo, CONTENT_TYPE_LATEST.encode())

    async def load(self, receive: Receive, send: Send, echo: dict[str, str]) -> None:
        """Server-sent events with the load, every 100 ms and at every change of state, until the client leaves."""
        async with watched_client(receive) as client:
            with self._service.link.watch() as changed:
                client.when_gone(changed.set)
                await start_answer(send, 200, {**echo, "cache-control": "no-cache"}, EVENT_STREAM)
                await self._feed(client, changed, send)

    async def _feed(self, client: Client, changed: asyncio.Event, send: Send) -> None:
        while not client.is_gone:
            event = b"data: " + msgspec.json.encode(self._load()) + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": not self._service.is_closing})
            if self._service.is_closing:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), LOAD_PERIOD_S)
            changed.clear()

    def _load(self) -> dict[str, Any]:
        """One event; README says what its members mean."""
        ready = self._service.link.ready
        return {
            "state": self._service.state,
            "ready": self._service.is_ready,
            "num_open": self._service.link.num_open,
            "silent_s": round(self._service.clock() - self._service.link.last_heard_at, 3),
            "block_size": 0 if ready is None else ready.block_size,
            "max_model_len": 0 if ready is None else ready.max_model_len,
            "max_num_batched_tokens": 0 if ready is None else ready.max_num_batched_tokens,
            **msgspec.structs.asdict(self._service.link.load),
        }

    def _state(self) -> dict[str, Any]:
        link = self._service.link
        phases = [{"name": phase.name, "seconds": round(phase.seconds, 3)} for phase in link.phases]
        state: dict[str, Any] = {"ready": self._service.is_ready, "state": self._service.state, "phases": phases}
        if link.ready is not None:
            state["core"] = _without_load(link.ready)
        if link.ready is None and link.failure:
            state["failure"] = link.failure
        return state

    def _model(self) -> dict[str, Any]:
        ready = self._service.link.ready
        return {
            "id": self._service.config.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "penstock",
            "max_model_len": None if ready is None else ready.max_model_len,
        }


def _without_load(ready: Ready) -> dict[str, Any]:
    """What the core said of itself; its load has a feed of its own."""
    return {name: value for name, value in msgspec.structs.asdict(ready).items() if name != "load"}
