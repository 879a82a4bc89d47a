"""Monotonic totals of the core's life."""

from __future__ import annotations

import msgspec

from engine.protocol import Counters


class CoreTotals(Counters, kw_only=True):
    """Counters of the core; the front receives `snapshot`."""

    def snapshot(self) -> Counters:
        """Return a copy of the present totals."""
        return Counters(**msgspec.structs.asdict(self))
