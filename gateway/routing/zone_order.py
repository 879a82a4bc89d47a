"""ZoneOrder: the zones of a route's candidates from near to far, by measured round trips.

A route that takes the nearest first goes to the next zone when no candidate of a nearer one can serve: all are ejected,
not ready or full. It comes back with hysteresis, so that a zone in trouble does not take and lose its requests again
and again: to one that was down once it has been up for a while, to one that was full once some permits are free. Zones
change places for good only where one has been clearly nearer for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

from gateway.deployments.live import LiveDeployment

FAIL_BACK_S: Final = 10.0
"""Time for which a zone that was down has to be up before its candidates come first again."""
ROOM_RATIO: Final = 0.9
"""Share of a zone's permits in use below which one that was full is used first again."""
NEARER_RATIO: Final = 0.8
"""Round trip to a zone, relative to that of the one before it, below which both change places."""
LEAST_GAIN_S: Final = 0.001
"""Difference of two round trips below which they count as equal."""
NEARER_S: Final = 30.0
"""Time for which a zone has to be nearer before it changes places: about twice as long as the probes that count, so
that zones of about the same round trip do not change places with the noise of their probes."""


class _ZoneState:
    """One zone: its candidates, and whether it lost its place."""

    __slots__ = ("is_away", "is_spilling", "members", "up_since")

    def __init__(self) -> None:
        self.members: list[LiveDeployment] = []
        self.is_away = False
        """True from when all were down until they have been up for FAIL_BACK_S."""
        self.is_spilling = False
        """True from when all permits were in use until some are free."""
        self.up_since: float | None = None

    def round_trip_s(self) -> float | None:
        """Return the shortest round trip of a candidate; None before one was measured."""
        known = [live.round_trip.seconds for live in self.members]
        return min((seconds for seconds in known if seconds is not None), default=None)

    def look(self, now: float, ejected: AbstractSet[str]) -> None:
        """Note who can serve now."""
        up = [live for live in self.members if live.is_ready and live.id not in ejected]
        self._note_up(now, is_up=bool(up))
        num_taken = sum(live.limiter.in_flight for live in up)
        num_permits = sum(live.limiter.limit for live in up)
        if num_taken >= num_permits:
            self.is_spilling = True
        elif num_taken <= ROOM_RATIO * num_permits:
            self.is_spilling = False

    def _note_up(self, now: float, *, is_up: bool) -> None:
        if not is_up:
            self.is_away, self.up_since = True, None
        elif self.is_away:
            if self.up_since is None:
                self.up_since = now
            self.is_away = now - self.up_since < FAIL_BACK_S


class ZoneOrder:
    """The order of one route's zones. A candidate without a zone is in the gateway's own."""

    def __init__(self, candidates: Sequence[tuple[LiveDeployment, str | None]], own: str | None) -> None:
        """Begin with the gateway's own zone, then in the order of the candidates."""
        self._zones: dict[str | None, _ZoneState] = {}
        self._zone_of: dict[str, str | None] = {}
        for live, zone in candidates:
            name = own if zone is None else zone
            self._zone_of[live.id] = name
            self._zones.setdefault(name, _ZoneState()).members.append(live)
        self._order = sorted(self._zones, key=lambda name: name != own)
        self._measured: set[str | None] = set()
        """Zones that have had a round trip."""
        self._nearer_since: dict[tuple[str | None, str | None], float] = {}
        """Instant since which the first zone has been nearer than the second, which comes before it."""

    def distances(self, now: float, ejected: AbstractSet[str]) -> Mapping[str, int]:
        """Return the place of each candidate's zone, 0 for the one to use first."""
        for zone in self._zones.values():
            zone.look(now, ejected)
        self._sort(now)
        in_use = sorted(self._order, key=lambda name: (self._zones[name].is_away, self._zones[name].is_spilling))
        places = {name: place for place, name in enumerate(in_use)}
        return {id: places[name] for id, name in self._zone_of.items()}

    def _sort(self, now: float) -> None:
        """Let zones change places that have been clearly nearer than the one before them for a while.

        The first measurement of a zone decides at once, because nothing but the policy ordered it before. A zone
        without one keeps its place, and those around it are compared with each other.
        """
        trips = {name: seconds for name in self._order if (seconds := self._zones[name].round_trip_s()) is not None}
        fresh = trips.keys() - self._measured
        self._measured |= fresh
        while self._swap_neighbours(now, trips, fresh) and fresh:
            pass

    def _swap_neighbours(self, now: float, trips: Mapping[str | None, float], fresh: AbstractSet[str | None]) -> bool:
        """Compare each zone with the one before it, from far to near; return whether any changed places."""
        order, is_changed = self._order, False
        places = [place for place, name in enumerate(order) if name in trips]
        for first, second in reversed([*pairwise(places)]):
            former, latter = order[first], order[second]
            if not _is_nearer(trips[latter], trips[former]):
                self._nearer_since.pop((latter, former), None)
            elif {former, latter} & fresh or now - self._nearer_since.setdefault((latter, former), now) >= NEARER_S:
                self._nearer_since.clear()  # other pairs are neighbours now
                order[first], order[second] = latter, former
                is_changed = True
        return is_changed


def _is_nearer(round_trip_s: float, other_s: float) -> bool:
    return round_trip_s < NEARER_RATIO * other_s and other_s - round_trip_s > LEAST_GAIN_S
