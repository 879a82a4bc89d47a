"""Whether a request waits for the lookup of similar answers, or is sent upstream while the lookup runs.

Waiting makes each miss late by the time of a lookup; sending at once gives a deployment prompts for nothing where the
lookup then hits, which hurts as much as the deployments are loaded. Both are seconds, so they can be compared.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SMOOTHING: Final = 0.05
_FIRST_LOOKUP_S: Final = 0.008


class LookupOrder(msgspec.Struct, gc=False):
    """What one route's lookups have shown; numbers are passed in."""

    hit_ratio: float = 0.0
    lookup_s: float = _FIRST_LOOKUP_S
    saved_s: float = 0.0
    """From the end of a lookup to when a deployment would have answered."""

    def note(self, *, is_hit: bool, took_s: float) -> None:
        """A lookup ended."""
        self.hit_ratio += _SMOOTHING * (is_hit - self.hit_ratio)
        self.lookup_s += _SMOOTHING * (took_s - self.lookup_s)

    def note_upstream(self, first_byte_s: float) -> None:
        """A deployment took so long."""
        self.saved_s += _SMOOTHING * (first_byte_s - self.saved_s)

    def waits(self, load_ratio: float) -> bool:
        """Whether the next request waits; `load_ratio` is the share of permits taken, 1 when requests queue.

        What a hit spares a deployment counts by how loaded it is; an idle one loses nothing.
        """
        spared_s = self.hit_ratio * self.saved_s * min(1.0, max(0.0, load_ratio))
        return spared_s > (1.0 - self.hit_ratio) * self.lookup_s
