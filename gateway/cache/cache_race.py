"""CacheRace: a deployment computes while the semantic tier is searched; the first response is served.

async with CacheRace(ctx) as race:
    race.watch(lookup)
    await forward()                  # cancelled when the lookup hits before a byte has gone to the client
if race.is_lost: ...                 # serve what the lookup found
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from gateway.cache.semantic.semantic_lookup import SemanticLookup
from gateway.request_context import RequestContext


class CacheRace:
    """A context that cancels its own body, as a timeout would; a cancellation from elsewhere stays one."""

    __slots__ = ("_cancels_before", "_ctx", "_lookup", "_task", "is_lost")

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._lookup: SemanticLookup | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self.is_lost = False
        """True if the deployment lost: nothing of its response was sent."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "an async context manager runs inside a task"
        self._cancels_before = self._task.cancelling()
        return self

    def watch(self, lookup: SemanticLookup) -> None:
        """Watch a lookup that has begun."""
        self._lookup = lookup
        lookup.on_hit = self._cancel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._lookup is not None:
            self._lookup.on_hit = None
        task, self._task = self._task, None
        assert task is not None, "entered once"
        if not self.is_lost:
            return False
        is_ours = task.uncancel() <= self._cancels_before
        if is_ours and kind is asyncio.CancelledError and not self._ctx.has_started:
            return True
        self.is_lost = False
        return False

    def _cancel(self) -> None:
        if self._task is not None and not self._ctx.has_started:
            self.is_lost = True
            self._task.cancel()
