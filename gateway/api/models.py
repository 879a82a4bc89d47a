"""`GET /v1/models`: the models that a key may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.api_keys import Caller
from gateway.api.application import ApiResponse
from gateway.errors import NotFound
from gateway.http.asgi import find_headers
from gateway.routing.snapshot import PolicySnapshot

MODELS_PATH: Final = "/v1/models"

_OWNER: Final = "penstock"


class ListedModel(msgspec.Struct, frozen=True):
    """One name that is valid in `model`."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = _OWNER


class ModelList(msgspec.Struct, frozen=True):
    """Every name this key may call."""

    data: list[ListedModel]
    object: str = "list"


class Models:
    """`GET /v1/models` and `GET /v1/models/{id}`; another tenant's names do not exist."""

    def __init__(self, policy: Callable[[], PolicySnapshot], started_at: int) -> None:
        self._policy = policy
        self._started_at = started_at

    async def list(self, request: Request) -> Response:
        """Models that the caller may use."""
        snapshot, caller = self._identify(request)
        names = snapshot.router.models_for(caller.tenant)
        return ApiResponse(ModelList([ListedModel(name, self._started_at) for name in names]))

    async def one(self, request: Request) -> Response:
        """Return one model. Raises NotFound (`model_not_found`)."""
        snapshot, caller = self._identify(request)
        name = request.path_params["model"]
        if name not in snapshot.router.models_for(caller.tenant):
            raise NotFound(
                "There is no such model for this key. GET /v1/models lists what it may use.",
                param="model",
                code="model_not_found",
            )
        return ApiResponse(ListedModel(name, self._started_at))

    def _identify(self, request: Request) -> tuple[PolicySnapshot, Caller]:
        snapshot = self._policy()
        host = request.client.host if request.client else None
        return snapshot, snapshot.keys.authenticate(find_headers(request.scope, b"authorization"), host)
