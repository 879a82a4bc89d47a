"""LookupOrder: whether a request waits for the semantic lookup, or is sent upstream while the lookup runs.

Waiting delays each miss by the time of a lookup. Sending at once wastes work where the lookup then hits: time of the
gateway's core, and a prompt at a deployment. The prompt costs as much as the deployments are loaded. Wait where

    P(hit) x (dispatch + saved x load)  >  P(miss) x lookup

Usual figures are half a millisecond to send and cancel, and five for a lookup. With these, requests wait for an idle
deployment from nine hits in ten lookups on.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SMOOTHING: Final = 0.05
_FIRST_LOOKUP_S: Final = 0.008


class LookupOrder(msgspec.Struct, gc=False):
    """Moving averages of one route's lookups; measurements are passed in."""

    hit_ratio: float = 0.0
    lookup_s: float = _FIRST_LOOKUP_S
    saved_s: float = 0.0
    """Time from the end of a lookup to a deployment's answer."""
    dispatch_s: float = 0.0
    """Time of the event loop's work for a request that is cancelled; 0 until one was seen."""

    def note(self, *, is_hit: bool, took_s: float) -> None:
        """Note a lookup that ended."""
        self.hit_ratio += _SMOOTHING * (is_hit - self.hit_ratio)
        self.lookup_s += _SMOOTHING * (took_s - self.lookup_s)

    def note_upstream(self, first_byte_s: float) -> None:
        """Note a deployment's time to first byte."""
        self.saved_s += _SMOOTHING * (first_byte_s - self.saved_s)

    def note_called_off(self, worked_s: float) -> None:
        """Note the event loop's work for a request that was cancelled."""
        self.dispatch_s += _SMOOTHING * (worked_s - self.dispatch_s)

    def waits(self, load_ratio: float) -> bool:
        """Return whether the next request waits for its lookup.

        Args:
            load_ratio: Share of permits taken, 1 when requests queue. A hit saves an idle deployment nothing.
        """
        spared_s = self.dispatch_s + self.saved_s * min(1.0, max(0.0, load_ratio))
        return self.hit_ratio * spared_s > (1.0 - self.hit_ratio) * self.lookup_s
