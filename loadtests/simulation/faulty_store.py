"""A store of quotas in memory whose answers come late, out of order, or never."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from gateway.store.base import Exchanged, Hold, StoreLoss, StoreUnavailable
from gateway.store.forwarding import ForwardingStore
from gateway.store.meter import Draw, draw_units, even_share

_LOST_RATIO: Final = 0.03
_REFUSED_RATIO: Final = 0.03
_DELAYS_S: Final = (0.0, 0.0, 0.0005, 0.005, 0.2)


class FaultyStore(ForwardingStore):
    """Answers `exchange` and `ping`; every other operation finds it down."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._counts: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._holds: defaultdict[str, dict[str, tuple[int, float]]] = defaultdict(dict)

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if operation == "ping":
            return None
        if operation != "exchange":
            raise StoreUnavailable(StoreLoss.DOWN, f"{operation} is not simulated", was_sent=False)
        return await self._exchange(*arguments, **options)

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def _exchange(self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None) -> Exchanged:
        drawn = self._rng.random()
        if drawn < _REFUSED_RATIO:
            raise StoreUnavailable(StoreLoss.DOWN, "refused", was_sent=False)
        await asyncio.sleep(self._rng.choice(_DELAYS_S))
        answer = self._apply(space, holder, draws, hold)
        if drawn < _REFUSED_RATIO + _LOST_RATIO:
            await asyncio.sleep(3600.0)  # done, and nobody will ever know
        await asyncio.sleep(self._rng.choice(_DELAYS_S))
        return answer

    def _apply(self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None) -> Exchanged:
        now = asyncio.get_running_loop().time()
        held, num_holders = (0, 1) if hold is None else self._keep(space, holder, hold, now)
        grants = tuple(draw_units(self._counts[space, draw.meter.name], draw, now, num_holders) for draw in draws)
        return Exchanged(now, grants, held, num_holders)

    def _keep(self, space: str, holder: str, hold: Hold, now: float) -> tuple[int, int]:
        others = {name: each for name, each in self._holds[space].items() if each[1] > now and name != holder}
        free = hold.limit - sum(units for units, _ in others.values())
        units = max(min(hold.units, free), 0)
        units += even_share(free - units, hold.spare, 0, len(others) + 1)
        self._holds[space] = {**others, holder: (units, now + hold.ttl_s)}
        return units, len(others) + 1
