"""`GET /v1/models`: the models that a key may call, and what each of them can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.api_keys import Caller
from gateway.api.application import ApiResponse
from gateway.chat.operation import CHAT, OPERATIONS
from gateway.dialects.messages.headers import with_authorization
from gateway.errors import NotFound
from gateway.http.asgi import find_headers
from gateway.routing.router import OperationPlan, Router
from gateway.routing.snapshot import PolicySnapshot

MODELS_PATH: Final = "/v1/models"

_OWNER: Final = "penstock"
_BASE: Final = "/v1/"
_NAMES: Final = frozenset(operation.name for operation in OPERATIONS)


class ListedModel(msgspec.Struct, frozen=True):
    """One name that is valid in `model`."""

    id: str
    created: int
    capabilities: list[str] = []
    """APIs that the model serves: `chat`, `completions`, `embeddings` and others of this gateway."""
    context_length: int | msgspec.UnsetType = msgspec.UNSET
    """Context length in tokens, where it is known."""
    input_modalities: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Kinds of content that the model reads, where they are known."""
    description: str | msgspec.UnsetType = msgspec.UNSET
    """Knowledge and limits of the model, where the policy states them."""
    parent: str | msgspec.UnsetType = msgspec.UNSET
    """Model that an adapter changes."""
    object: str = "model"
    owned_by: str = _OWNER


class ModelList(msgspec.Struct, frozen=True):
    """Every name this key may call."""

    data: list[ListedModel]
    object: str = "list"


class Models:
    """`GET /v1/models` and `GET /v1/models/{id}`; another tenant's names do not exist."""

    def __init__(self, policy: Callable[[], PolicySnapshot], started_at: int, paths: Sequence[str] = ()) -> None:
        """Create the endpoints; `paths` are those of the other APIs on the chat pipeline."""
        self._policy = policy
        self._started_at = started_at
        self._apis = _apis_of(paths)

    async def list(self, request: Request) -> Response:
        """Models that the caller may use."""
        snapshot, caller = self._identify(request)
        router, tenant = snapshot.router, caller.tenant
        listed: list[ListedModel] = []
        for name in router.models_for(tenant):
            model = self._listed(name, router, tenant)
            adapted = [f"{name}:{adapter}" for adapter in router.adapters_of(name, tenant)]
            listed += [model, *(msgspec.structs.replace(model, id=one, parent=name) for one in adapted)]
        return ApiResponse(ModelList(listed))

    async def one(self, request: Request) -> Response:
        """Return one model. Raises NotFound (`model_not_found`)."""
        snapshot, caller = self._identify(request)
        name = request.path_params["model"]
        base, adapter = snapshot.router.split(name)
        has_adapter = adapter is None or adapter in snapshot.router.adapters_of(base, caller.tenant)
        if base not in snapshot.router.models_for(caller.tenant) or not has_adapter:
            raise NotFound(
                "There is no such model for this key. GET /v1/models lists what it may use.",
                param="model",
                code="model_not_found",
            )
        model = self._listed(base, snapshot.router, caller.tenant)
        return ApiResponse(model if adapter is None else msgspec.structs.replace(model, id=name, parent=base))

    def _listed(self, name: str, router: Router, tenant: str) -> ListedModel:
        plans = router.plans_of(name, tenant)
        able = [api for plan in plans for api in self._apis.get(plan.operation.name, ())]
        context = plans[0].planned.context_tokens if plans else None
        modalities = _modalities_of(plans[0]) if plans else None
        return ListedModel(
            name,
            self._started_at,
            able,
            msgspec.UNSET if context is None else context,
            msgspec.UNSET if modalities is None else modalities,
            (_description_of(plans[0]) if plans else "") or msgspec.UNSET,
        )

    def _identify(self, request: Request) -> tuple[PolicySnapshot, Caller]:
        snapshot = self._policy()
        host = request.client.host if request.client else None
        scope = {**request.scope, "headers": with_authorization(request.scope["headers"])}
        return snapshot, snapshot.keys.authenticate(find_headers(scope, b"authorization"), host)


def _apis_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the APIs that lead to each operation, by its name; most translate to chat."""
    apis: dict[str, list[str]] = {CHAT.name: [CHAT.name]}
    for path in paths:
        name = path.removeprefix(_BASE)
        if "/" not in name:
            operation = name if name in _NAMES else CHAT.name
            apis.setdefault(operation, []).append(name)
    return apis


def _description_of(plan: OperationPlan) -> str:
    """Return the route's description, or that of its only candidate."""
    candidates = plan.planned.candidates
    return plan.planned.route.description or (candidates[0][0].description if len(candidates) == 1 else "")


def _modalities_of(plan: OperationPlan) -> list[str] | None:
    """Return the kinds of content that every candidate reads; None where that of any is unknown."""
    known = [live.input_modalities for live, _ in plan.planned.candidates]
    first = known[0]
    if first is None or None in known:
        return None
    return [kind for kind in first if all(kind in (one or ()) for one in known)]
