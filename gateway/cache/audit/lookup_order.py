"""LookupOrder: whether a request waits for the semantic lookup, or is sent upstream at once.

Waiting delays each miss by the time of a lookup. Sending at once wastes work where the lookup then hits: time of the
gateway's core, and a prompt at a deployment. The prompt costs as much as the deployments are loaded. Wait where

    P(hit) x (dispatch + saved x load)  >  P(miss) x lookup

Usual figures are half a millisecond to send and cancel, and five for a lookup. With these, requests wait for an idle
deployment from nine hits in ten lookups on.

Where a lookup beside the upstream call would come too late, the alternative to waiting is no lookup. A hit then saves
the client the time by which the deployment is slower, too.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SMOOTHING: Final = 0.05
_FIRST_LOOKUP_S: Final = 0.008
_HOLD_COST: Final = 0.25
"""Cost of a late miss over the gain of a hit, where streams are held back."""


class LookupOrder(msgspec.Struct, gc=False):
    """Moving averages of one route's lookups; measurements are passed in."""

    hit_ratio: float = 0.0
    lookup_s: float = _FIRST_LOOKUP_S
    saved_s: float = 0.0
    """Time from the dispatch of a request to the beginning of its response."""
    dispatch_s: float = 0.0
    """Time of the event loop's work for a request that is cancelled; 0 until one was seen."""

    def note(self, *, is_hit: bool, took_s: float | None) -> None:
        """Note a lookup that ended; None: it ran later, and its time shows nothing."""
        self.hit_ratio += _SMOOTHING * (is_hit - self.hit_ratio)
        if took_s is not None:
            self.lookup_s += _SMOOTHING * (took_s - self.lookup_s)

    def note_upstream(self, took_s: float) -> None:
        """Note the time from a dispatch to the beginning of the response."""
        self.saved_s += _SMOOTHING * (took_s - self.saved_s)

    def note_called_off(self, worked_s: float) -> None:
        """Note the event loop's work for a request that was cancelled."""
        self.dispatch_s += _SMOOTHING * (worked_s - self.dispatch_s)

    def holds(self, late_ratio: float) -> bool:
        """Return whether a stream that begins before its lookup ends is held back for a moment.

        A hit saves all of the generation, several times the time to the first byte. A miss pays a part of that time.

        Args:
            late_ratio: Share of the lookups that would be late otherwise.
        """
        return self.hit_ratio >= _HOLD_COST * late_ratio

    def waits(self, load_ratio: float, *, may_race: bool = True) -> bool:
        """Return whether the next request waits for its lookup.

        Args:
            load_ratio: Share of permits taken, 1 when requests queue. A hit saves an idle deployment nothing.
            may_race: False where a lookup beside the upstream call would come too late.
        """
        spared_s = self.dispatch_s + self.saved_s * min(1.0, max(0.0, load_ratio))
        if not may_race:
            spared_s += max(0.0, self.saved_s - self.lookup_s)
        return self.hit_ratio * spared_s > (1.0 - self.hit_ratio) * self.lookup_s
