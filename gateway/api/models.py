"""The public listener's endpoints beside chat: the models a key may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.access.api_keys import Caller
from gateway.api.feedback import FEEDBACK_PATH, FeedbackHandlers
from gateway.api.health import Probes
from gateway.api.routes import SiteMap, SmallResponse
from gateway.errors import NotFound
from gateway.http.asgi import ASGIApp, Scope, find_headers
from gateway.routing.snapshot import PolicySnapshot

CHAT_PATH: Final = "/v1/chat/completions"
MODELS_PATH: Final = "/v1/models"

_OWNER: Final = "penstock"


class ListedModel(msgspec.Struct, frozen=True):
    """One name that may stand in `model`."""

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

    async def list(self, scope: Scope) -> SmallResponse:
        """What the caller may use."""
        snapshot, caller = self._identify(scope)
        names = snapshot.router.models_for(caller.tenant)
        return SmallResponse.json(ModelList([ListedModel(name, self._started_at) for name in names]))

    async def one(self, scope: Scope) -> SmallResponse:
        """One of them; raises NotFound (`model_not_found`)."""
        snapshot, caller = self._identify(scope)
        name = scope["path"].removeprefix(f"{MODELS_PATH}/")
        if name not in snapshot.router.models_for(caller.tenant):
            raise NotFound(
                "There is no such model for this key. GET /v1/models lists what it may use.",
                param="model",
                code="model_not_found",
            )
        return SmallResponse.json(ListedModel(name, self._started_at))

    def _identify(self, scope: Scope) -> tuple[PolicySnapshot, Caller]:
        snapshot = self._policy()
        client = scope.get("client")
        host = client[0] if client else None
        return snapshot, snapshot.keys.authenticate(find_headers(scope, b"authorization"), host)


def public_map(chat: ASGIApp, models: Models, probes: Probes, feedback: FeedbackHandlers) -> SiteMap:
    """Where the public listener's endpoints are."""
    return SiteMap(
        post={CHAT_PATH: chat},
        submit={FEEDBACK_PATH: feedback.submit},
        get={
            MODELS_PATH: models.list,
            "/livez": probes.livez,
            "/readyz": probes.readyz,
            "/startupz": probes.startupz,
        },
        below={f"{MODELS_PATH}/": models.one},
    )
