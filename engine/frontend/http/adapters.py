"""`POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`, in the form of vLLM's server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.config import is_adapter_name
from engine.frontend.core_client.service import EngineService
from engine.frontend.request.asgi import Headers, read_json_body
from engine.frontend.request.errors import invalid_value, overloaded_error
from engine.frontend.request.strict_json import parse_object

_MAX_PATH_CHARS = 1024


class AdapterAdmin:
    """Handlers that change the adapters in memory; without a folder of adapters there are none."""

    def __init__(self, service: EngineService, lora_dir: Path | None) -> None:
        self._service = service
        self._lora_dir = lora_dir

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        if self._lora_dir is None:
            return []
        return [
            Route("/v1/load_lora_adapter", self.load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", self.unload, methods=["POST"]),
        ]

    async def load(self, request: Request) -> Response:
        """Load an adapter from a folder inside `lora_dir`. Raises ApiError."""
        body = await self._body(request)
        name = _name(body)
        if body.get("load_inplace"):
            raise invalid_value("load_inplace", "`load_inplace` must be false; unload the adapter first.")
        path = body.get("lora_path")
        if not isinstance(path, str) or not 0 < len(path) <= _MAX_PATH_CHARS:
            raise invalid_value("lora_path", f"`lora_path` must be a folder of up to {_MAX_PATH_CHARS} characters.")
        await self._service.link.adapters.load(name, str(self._inside(path)))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        """Unload an adapter once its requests have ended. Raises ApiError."""
        name = _name(await self._body(request))
        await self._service.link.adapters.unload(name, self._service.config.drain_timeout_s)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _body(self, request: Request) -> dict[str, Any]:
        body = await read_json_body(Headers(request.scope), request.receive, self._service.config.max_body_bytes)
        if self._service.is_draining:
            raise overloaded_error("The engine is shutting down.", reason="draining")
        return parse_object(body)

    def _inside(self, path: str) -> Path:
        """Return the folder that a path names, relative to `lora_dir` or absolute, if it lies inside."""
        assert self._lora_dir is not None
        root = self._lora_dir.resolve()
        try:
            folder = (root / path).resolve()
        except (OSError, ValueError, RuntimeError):  # a NUL, or links in a circle
            folder = root
        if folder == root or not folder.is_relative_to(root):
            raise invalid_value("lora_path", "`lora_path` must be a folder inside the engine's lora_dir.")
        return folder


def _name(body: dict[str, Any]) -> str:
    name = body.get("lora_name")
    if not isinstance(name, str) or not is_adapter_name(name):
        raise invalid_value(
            "lora_name", "`lora_name` must have 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first."
        )
    return name
