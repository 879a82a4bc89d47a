"""Whether a request waits for the lookup of similar answers, or is sent upstream while the lookup runs.

Waiting makes each miss late by the time of a lookup. Sending at once is for nothing where the lookup then hits: it
takes time of the gateway's core, which the lookup itself needs and others wait for, and it gives a deployment a
prompt, which hurts as much as the deployments are loaded. All of that is seconds, so it can be compared; wait where

    P(hit) x (dispatch + saved x load)  >  P(miss) x lookup

With what is usual (half a millisecond to send and call off, five to look) an idle deployment is spared from some nine
hits in ten lookups on.
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
    dispatch_s: float = 0.0
    """Of the event loop's own work, to send a request that is then called off; 0 until that was seen."""

    def note(self, *, is_hit: bool, took_s: float) -> None:
        """A lookup ended."""
        self.hit_ratio += _SMOOTHING * (is_hit - self.hit_ratio)
        self.lookup_s += _SMOOTHING * (took_s - self.lookup_s)

    def note_upstream(self, first_byte_s: float) -> None:
        """A deployment took so long."""
        self.saved_s += _SMOOTHING * (first_byte_s - self.saved_s)

    def note_called_off(self, worked_s: float) -> None:
        """A request had been sent for nothing, which took the event loop so long."""
        self.dispatch_s += _SMOOTHING * (worked_s - self.dispatch_s)

    def waits(self, load_ratio: float) -> bool:
        """Whether the next request waits; `load_ratio` is the share of permits taken, 1 when requests queue.

        What a hit spares a deployment counts by how loaded it is; an idle one loses nothing.
        """
        spared_s = self.dispatch_s + self.saved_s * min(1.0, max(0.0, load_ratio))
        return self.hit_ratio * spared_s > (1.0 - self.hit_ratio) * self.lookup_s
