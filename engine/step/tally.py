"""Monotonic totals of the core's life."""

from __future__ import annotations

import msgspec

from engine.protocol import Counters


class CoreTotals(Counters, kw_only=True):
    """Counts as things happen; `snapshot` is what the front sees."""

    def snapshot(self) -> Counters:
        """Return the totals so far, which change no more."""
        return Counters(**msgspec.structs.asdict(self))
