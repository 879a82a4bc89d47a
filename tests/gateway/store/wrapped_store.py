"""Stores around another one, for tests of what happens without it."""

from __future__ import annotations

from typing import Any

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.forwarding import ForwardingStore


class WrappedStore(ForwardingStore):
    """A store that hands everything to another one; subclasses change `_forward`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def nodes(self) -> tuple[str, ...]:
        return self.store.nodes()

    def node_of(self, space: str) -> str:
        return self.store.node_of(space)

    async def aclose(self) -> None:
        await self.store.aclose()

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(self.store, operation)(*arguments, **options)


class SwitchedStore(WrappedStore):
    """A store that can be away."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_away = False

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable(StoreLoss.DOWN, "away", was_sent=False)
        return await super()._forward(operation, *arguments, **options)
