"""Outlook: what each candidate would do with a request that came now, and which of them are in time."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gateway.admission.claim import Claim
from gateway.admission.row_bound import rows_within
from gateway.routing.ask import Ask
from gateway.routing.candidate import Candidate, Seen
from gateway.routing.forecast import LONG_PROMPT_TOKENS
from gateway.routing.live import LiveDeployment
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.shortlist import NUM_DRAWN

MAX_LOOKS: Final = 8
"""Candidates that are looked at for one request; with more, where to begin goes round."""
ENOUGH_LOOKS: Final = 4
"""After so many the first that is in time ends the search."""
RETRY_SHARE: Final = 0.5
"""Of the time there is, what a client's retry may expect to wait."""
UNTRIED_S: Final = 1.0
"""A deployment that got nothing for so long is tried although its forecast is late, or the forecast would stay so."""
TRIED_RATIO: Final = 10.0
"""Unless it is late by more than this factor: there is no hope in that."""


class Outlook(Seen, frozen=True, gc=False):
    """One candidate's forecast; seconds from now."""

    service_s: float
    """From the permit to the first byte that the client sees: the first token of a stream, all of a plain answer."""
    is_in_time: bool
    start_s: float = 0.0
    """Of the wait, what passes until it is ready: it is still starting."""

    @property
    def live(self) -> LiveDeployment:
        """The candidate."""
        return self.option.live

    @property
    def total_s(self) -> float:
        """Until the first byte."""
        return self.wait_s + self.service_s

    def is_better_than(self, other: Outlook) -> bool:
        """Sooner, but first of all in time."""
        if self.is_in_time is not other.is_in_time:
            return self.is_in_time
        return self.wait_s + self.service_s < other.wait_s + other.service_s


class Outlooks(msgspec.Struct, frozen=True):
    """The candidates of one route for one request."""

    best: Outlook | None
    """The soonest, of those in time if there are any; None when no candidate is fit."""
    too_late: frozenset[str]
    """Ids of those that would be too late."""
    planned: PlannedRoute | None = None
    """The route that `best` belongs to, if it is in time."""
    seen: tuple[Seen, ...] = ()
    """Of many candidates those that the router may choose from without looking again."""

    @property
    def is_in_time(self) -> bool:
        """Whether somebody would be."""
        return self.best is not None and self.best.is_in_time


_NOBODY: Final[frozenset[str]] = frozenset()


class Lookout:
    """Looks at candidates; keeps nothing but where it began last."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def look(self, now: float, planned: PlannedRoute, ask: Ask, *, is_stream: bool) -> Outlooks:
        """The outlooks of the route's candidates that are fit, in the route's order where the first takes all."""
        few = planned.few(now, ask)
        if few is not None:
            found = self._look_at_few(now, planned, few, ask, is_stream=is_stream)
            if found.is_in_time:
                return found
        return self._look_around(now, planned, ask, is_stream=is_stream)

    def coming(self, now: float, planned: PlannedRoute, ask: Ask, *, is_stream: bool) -> Outlook | None:
        """Where nobody is ready: the outlook of the first that will be, of the route or its fallbacks; None where
        nobody says that it is starting."""
        start = planned.next_start(now)
        if start is None:
            return None
        found = self._outlook(now, start.option, ask, is_stream=is_stream)
        wait_s = start.left_s + found.wait_s
        ratio = lateness(now, ask.claim, wait_s, wait_s + found.ttft_s, wait_s + found.service_s)
        return msgspec.structs.replace(found, wait_s=wait_s, is_in_time=ratio <= 1.0, start_s=start.left_s)

    def _look_at_few(
        self, now: float, planned: PlannedRoute, few: list[Candidate], ask: Ask, *, is_stream: bool
    ) -> Outlooks:
        """At those of many that the router would look at: it is then spared that."""
        best: Outlook | None = None
        late: list[str] = []
        seen: list[Seen] = []
        for option in few:
            if len(few) > NUM_DRAWN and option is few[-1] and best is not None and _is_enough(best, few):
                break
            found = self._outlook(now, option, ask, is_stream=is_stream)
            if found.is_in_time:
                seen.append(found)
            else:
                late.append(option.live.id)
            if best is None or found.is_better_than(best):
                best = found
        return Outlooks(best, frozenset(late) if late else _NOBODY, planned, tuple(seen))

    def _look_around(self, now: float, planned: PlannedRoute, ask: Ask, *, is_stream: bool) -> Outlooks:
        """At one after the other, up to a bound; with many the router looks again."""
        options = planned.options
        num = len(options)
        first = 0
        if num > ENOUGH_LOOKS and not planned.profile.takes_first:
            self._turn = first = (self._turn + 1) % num
        best: Outlook | None = None
        late: list[str] = []
        for step in range(min(num, MAX_LOOKS)):
            option = options[(first + step) % num]
            live = option.live
            if not live.is_ready or not live.health.is_fit:
                continue
            found = self._outlook(now, option, ask, is_stream=is_stream)
            if not found.is_in_time:
                late.append(live.id)
            if best is None or found.is_better_than(best):
                best = found
            if best.is_in_time and (planned.profile.takes_first or step + 1 >= ENOUGH_LOOKS):
                break
        return Outlooks(best, frozenset(late) if late else _NOBODY, planned)

    def _outlook(self, now: float, option: Candidate, ask: Ask, *, is_stream: bool) -> Outlook:
        # Few helpers: it runs for every candidate that is looked at.
        live, claim = option.live, ask.claim
        lane, forecast, limiter, bound = claim.lane, live.forecast, live.limiter, live.row_bound
        price = ask.price_at(live.id) if ask.held_tokens else ask.price
        lane_tpot_s, wanted_tpot_s = lane.rules.tpot_slo_s, ask.tpot_slo_s
        if lane_tpot_s is not None and (now >= bound.due_at or lane_tpot_s < bound.tightest_s):
            target_s = bound.target_due(now, lane_tpot_s)
            if target_s is not None:
                limiter.bound_rows(rows_within(forecast, now, target_s))
                limiter.set_room(forecast.step_tokens(now))
        made = forecast.look(now, price.uncached_tokens, lane.engine_lane)
        ttft_s = service_s = hold_s = made.seconds
        tpot_s, is_too_slow = made.tpot_s, False
        if not is_stream or wanted_tpot_s is not None:
            hold_s = ttft_s + (price.output_tokens - 1 if price.output_tokens > 1 else 0) * tpot_s
            if not is_stream:
                service_s = hold_s
            # The lane's own target bounds the rows instead.
            is_too_slow = (
                wanted_tpot_s is not None
                and tpot_s > wanted_tpot_s
                and (lane_tpot_s is None or wanted_tpot_s < lane_tpot_s)
            )
        is_long = is_stream and price.uncached_tokens > LONG_PROMPT_TOKENS
        wait_s, demand_ratio = limiter.prospect(now, claim, hold_s, is_long=is_long)
        in_time = False
        if not is_too_slow:
            ratio = lateness(now, claim, wait_s, wait_s + ttft_s, wait_s + service_s) * demand_ratio
            in_time = ratio <= 1.0 or (ratio <= TRIED_RATIO and limiter.idle_s(now, lane) >= UNTRIED_S)
        return Outlook(option, price, wait_s, ttft_s, tpot_s, service_s, in_time)


def _is_enough(best: Outlook, few: list[Candidate]) -> bool:
    """Whether the last one drawn need not be looked at: who is preferred for what it holds was better than another."""
    return best.is_in_time and best.option is not few[-2]


def lateness(now: float, claim: Claim, wait_s: float, ttft_s: float, first_byte_s: float) -> float:
    """Time needed over time there is, by whichever of the target and the deadline is tighter."""
    left_s = math.inf if claim.ttft_by is None else claim.ttft_by - now
    ratio = ttft_s / left_s if left_s > 0.0 else math.inf
    if claim.deadline_at is not None:
        left_s = claim.deadline_at - now
        other = first_byte_s / left_s if left_s > 0.0 else math.inf
        ratio = other if other > ratio else ratio
    return ratio / RETRY_SHARE if claim.is_retry and wait_s > 0.0 else ratio
