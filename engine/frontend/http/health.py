"""Small answers about the engine itself: health, start-up, version, models, metrics, and the feed of its load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from engine.frontend.core_client.service import EngineService
from engine.frontend.request.asgi import EVENT_STREAM
from engine.frontend.request.unserved import adapted_name, adapter_of
from engine.protocol import Ready

LOAD_PERIOD_S = 0.1


class EngineProbes:
    """Handlers of all routes except completions."""

    def __init__(self, service: EngineService, unix_time: Callable[[], float]) -> None:
        self._service = service
        self._created = int(unix_time())
        self._version = _installed_version()

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        return [
            Route("/livez", self.livez),
            Route("/readyz", self.readyz),
            Route("/startupz", self.startupz),
            Route("/health", self.readyz),
            Route("/version", self.version),
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.model),
            Route("/metrics", self.metrics),
            Route("/engine/load", self.load),
        ]

    async def livez(self, request: Request) -> Response:
        """Return 200 while the event loop runs."""
        return _json({"alive": True})

    async def readyz(self, request: Request) -> Response:
        """Return 200 while requests are served, else 503; both contain the state and the phases so far."""
        return _json(self._state(), 200 if self._service.is_ready else 503)

    async def startupz(self, request: Request) -> Response:
        """Return 200 once the core is ready, else 503, with the seconds of the phases of start-up."""
        return _json(self._state(), 200 if self._service.link.ready is not None else 503)

    async def version(self, request: Request) -> Response:
        """Return the installed version of this package."""
        return _json({"version": self._version})

    async def models(self, request: Request) -> Response:
        """Return the list of the model and its adapters."""
        names = [None, *self._service.link.adapters.names]
        return _json({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> Response:
        """Return the model, alone or with an adapter. Raises ApiError (404)."""
        model_id = request.path_params["model"]
        adapter = adapter_of(model_id, self._service.config)
        if adapter is not None:
            self._service.link.adapters.check(adapter, model_id)
        return _json(self._model(adapter))

    async def metrics(self, request: Request) -> Response:
        """Return all metrics in Prometheus's text format."""
        return Response(generate_latest(self._service.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def load(self, request: Request) -> Response:
        """Stream the load as server-sent events, every 100 ms and at every change of state, until the client leaves."""
        headers = {"cache-control": "no-cache", "content-type": EVENT_STREAM.decode("ascii")}
        return Response(headers=headers) if request.method == "HEAD" else StreamingResponse(self._loads(), 200, headers)

    async def _loads(self) -> AsyncIterator[bytes]:
        with self._service.link.watch() as changed:
            while True:
                is_last = self._service.is_closing
                yield b"data: " + msgspec.json.encode(self._load()) + b"\n\n"
                if is_last:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOAD_PERIOD_S)
                changed.clear()

    def _load(self) -> dict[str, Any]:
        """Return one event of the load feed; README describes its members."""
        ready = self._service.link.ready
        return {
            "state": self._service.state,
            "ready": self._service.is_ready,
            "num_open": self._service.link.num_open,
            "silent_s": round(self._service.clock() - self._service.link.last_heard_at, 3),
            "block_size": 0 if ready is None else ready.block_size,
            "max_model_len": 0 if ready is None else ready.max_model_len,
            "max_num_batched_tokens": 0 if ready is None else ready.max_num_batched_tokens,
            "device": "" if ready is None else ready.device,
            "num_threads": 0 if ready is None else ready.num_threads,
            "adapters": self._service.link.adapters.names,
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

    def _model(self, adapter: str | None = None) -> dict[str, Any]:
        ready, config, text = self._service.link.ready, self._service.config, self._service.text
        parent = {} if adapter is None else {"parent": config.model_name}
        return {
            "id": config.model_name if adapter is None else adapted_name(adapter, config),
            **parent,
            "object": "model",
            "created": self._created,
            "owned_by": "penstock",
            "max_model_len": None if ready is None else ready.max_model_len,
            "tool_format": None if text.tool_format is None else text.tool_format.family,
            "reasoning_format": text.reasoning.family
            if text.reasoning is not None and text.reasoning.is_apart
            else None,
        }


def _installed_version() -> str:
    """Return the package's version, or `0+checkout` for a source tree that is not installed."""
    try:
        return package_version("penstock")
    except PackageNotFoundError:
        return "0+checkout"


def _without_load(ready: Ready) -> dict[str, Any]:
    """Return the core's Ready message without its load, which has a feed of its own."""
    return {name: value for name, value in msgspec.structs.asdict(ready).items() if name != "load"}


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
