"""Stores around another one, for tests of what happens without it."""

from __future__ import annotations

from typing import Any

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.forwarding import OuterStore


class SwitchedStore(OuterStore):
    """A store that can be away."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_away = False

    @property
    def store(self) -> Store:
        """The store behind it, which another may replace."""
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable(StoreLoss.DOWN, "away", was_sent=False)
        return await super()._forward(operation, *arguments, **options)
