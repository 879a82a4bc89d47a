"""LookupOrder: whether a request waits for the semantic lookup, or is sent upstream at once.

Waiting delays each miss by the time of a lookup. Sending at once wastes work where the lookup then hits: time of the
gateway's core, and a prompt at a deployment. The prompt costs as much as the deployments are loaded, and all of it at a
deployment with a price. Wait where

    P(hit) x (dispatch + saved x load)  >  P(miss) x lookup

Usual figures are half a millisecond to send and cancel, and five for a lookup. With these, requests wait for an idle
deployment without a price from nine hits in ten lookups on.

Where a lookup beside the upstream call would come too late, the alternative to waiting is no lookup. A hit then saves
the client the whole generation, too, and money where the deployments have a price. Those prices do not say what a
second of a client is worth. So requests wait as long as a lookup takes no longer than an answer and hits are not rare.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SMOOTHING: Final = 0.05
_FIRST_LOOKUP_S: Final = 0.008
_HOLD_COST: Final = 0.25
"""Cost of a late miss over the gain of a hit, where streams are held back."""
_PAID_HIT_RATIO: Final = 0.01
"""Least share of hits for which lookups that would be late come first at deployments with a price."""


class LookupOrder(msgspec.Struct, gc=False):
    """Moving averages of one route's lookups; measurements are passed in."""

    hit_ratio: float = 0.0
    lookup_s: float = _FIRST_LOOKUP_S
    saved_s: float = 0.0
    """Time from the dispatch of a request to the beginning of its response."""
    answer_s: float = 0.0
    """Time from the dispatch of a request to the end of its response."""
    dispatch_s: float = 0.0
    """Time of the event loop's work for a request that is cancelled; 0 until one was seen."""

    def note(self, *, is_hit: bool, took_s: float | None) -> None:
        """Note a lookup that ended; None: it ran later, and its time shows nothing."""
        self.hit_ratio += _SMOOTHING * (is_hit - self.hit_ratio)
        if took_s is not None:
            self.lookup_s += _SMOOTHING * (took_s - self.lookup_s)

    def note_upstream(self, took_s: float, whole_s: float) -> None:
        """Note the times from a dispatch to the beginning and to the end of the response."""
        self.saved_s += _SMOOTHING * (took_s - self.saved_s)
        self.answer_s += _SMOOTHING * (whole_s - self.answer_s)

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

    def waits(self, load_ratio: float, *, late_lookup_s: float | None = None, is_paid: bool = False) -> bool:
        """Return whether the next request waits for its lookup.

        Args:
            load_ratio: Share of permits taken, 1 when requests queue. A hit saves an idle deployment nothing.
            late_lookup_s: Time of a lookup now, where one beside the upstream call would come too late; else None.
            is_paid: True if a deployment has a price, so that a hit saves money whatever the load.
        """
        spared_s = self.dispatch_s + self.saved_s * (1.0 if is_paid else min(1.0, max(0.0, load_ratio)))
        lookup_s = self.lookup_s
        if late_lookup_s is not None:
            lookup_s = late_lookup_s
            spared_s += max(0.0, self.answer_s - lookup_s)
            if is_paid and lookup_s <= self.answer_s and self.hit_ratio >= _PAID_HIT_RATIO:
                return True
        return self.hit_ratio * spared_s > (1.0 - self.hit_ratio) * lookup_s
