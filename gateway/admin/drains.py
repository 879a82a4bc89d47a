"""Drains: the deployments that operators have taken out of service, in the store so that every replica follows.

Space `drains`, one key for each deployment that is drained. A process that cannot reach the store applies what it
read last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.deployments.live import LiveDeployment
from gateway.errors import NotFound
from gateway.policies.revision import MAX_REASON_CHARS
from gateway.store.base import Store, StoreUnavailable

SPACE: Final = "drains"
DRAIN_PATH: Final = "/admin/api/deployments/{name}/drain"
LOOK_S: Final = 1.0
_MAX_DRAINS: Final = 1000


class DrainOrder(RequestBody, frozen=True, kw_only=True):
    """The body of a drain request."""

    drain: bool
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARS)] = ""


class Deployments(Protocol):
    """The live deployments by id."""

    def __call__(self) -> Mapping[str, LiveDeployment]:
        """Return the deployments of the policy in force."""
        ...


class Drains:
    """`POST /admin/api/deployments/{id}/drain`, and the drains that follow the store."""

    def __init__(self, deployments: Deployments, store: Store, audit: AuditLog, on_change: Callable[[], None]) -> None:
        """Follow the store; `on_change` is called when a deployment is wanted again and its health is unknown."""
        self._deployments = deployments
        self._store = store
        self._audit = audit
        self._on_change = on_change
        self._drained: frozenset[str] = frozenset()
        self._cursor = -1

    @serves(DRAIN_PATH, "POST")
    async def order(self, request: AdminRequest) -> Response:
        """Drain a deployment, or put it back into service, even where the drain outlived its member.

        Raises NotFound, InvalidRequest and AuditBroken; then nothing has changed. After StoreUnavailable, which the
        store may raise for an order that it took, `GET /admin/api/deployments` shows the state.
        """
        name = request.path_params["name"]
        drain_order = request.fill(DrainOrder)
        if name not in self._deployments() and (drain_order.drain or name not in self._drained):
            raise NotFound("There is no such deployment in the policy in force.")
        action = "deployment.drain" if drain_order.drain else "deployment.take_back"
        async with self._audit.announced(request.who, action, name, reason=drain_order.reason):
            if drain_order.drain:
                await self._store.put(SPACE, name, msgspec.json.encode({"reason": drain_order.reason}))
            else:
                await self._store.delete(SPACE, name)
        self._take(self._drained | {name} if drain_order.drain else self._drained - {name})
        return ApiResponse({"deployment": name, "drain": drain_order.drain})

    def apply(self) -> None:
        """Apply the drains to a new revision, which may have brought new deployments."""
        self._take(self._drained)

    async def run(self) -> None:
        """Follow the store for ever; ends by cancellation."""
        while True:
            try:
                await self._look()
            except StoreUnavailable:
                self._cursor = -1  # what changed meanwhile is read anew
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Read everything when anything changed: it is little."""
        after = None if self._cursor < 0 else self._cursor
        feed = await self._store.changes(SPACE, after=after)
        if after is None or feed.changes or feed.is_gap:
            self._take(frozenset(await self._store.keys(SPACE, limit=_MAX_DRAINS)))
        self._cursor = feed.cursor

    def _take(self, drained: frozenset[str]) -> None:
        self._drained = drained
        is_any_back = False
        for name, live in self._deployments().items():
            is_drained = name in drained
            if live.is_draining != is_drained:
                live.drain(is_draining=is_drained)
                is_any_back = is_any_back or not is_drained
        if is_any_back:
            self._on_change()
