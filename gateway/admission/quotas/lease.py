"""QuotaLease: units of one meter that this process drew from the store and may use without another call."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal

from gateway.store.meter import BUCKET_S, MAX_AHEAD, NEVER_S, Draw, Grant, Meter, Period, draw_units

OnLoss = Literal["allow", "refuse"]

MEASURED_S: Final = 0.05
RATE_S: Final = 1.0
"""Seconds over which the rate of use is averaged."""
MIN_AHEAD: Final = 1
AHEAD_RATIO: Final = 1 / 8
"""Largest share of the remaining quota that a process draws ahead of need."""
TIGHT_RATIO: Final = 1 / 2
SCRAP_RATIO: Final = 1 / 50
"""Share of the limit below which unused units are not returned at once."""
LAZY_S: Final = 4.0
"""Seconds that the store may go without news that no request waits for."""
TIGHT_S: Final = 1.0
"""Seconds for which a process holds scarce units at most."""
RENEW_AHEAD_S: Final = 0.2
"""Seconds before the present units expire at which new ones are fetched."""
RENEW_EARLY_S: Final = 2.0
RENEW_AFTER_S: Final = 0.05
"""Seconds for which an empty answer of the store is trusted; other processes may have returned units since."""
NANO: Final = 10**9
"""Units of cost in one unit of the currency."""
NOW_BUCKET: Final = 1 << 52
"""A bucket later than any other: units returned to it count at the store's current time."""
_MAX_OWN_BUCKETS: Final = 512
_MINUTE_S: Final = 60.0


class Unit(IntEnum):
    """Unit that a meter counts; the value indexes a request's needs."""

    REQUEST = 0
    TOKEN = 1
    NANO = 2
    """Billionths of the currency of the policy's prices."""


Needs = tuple[int, int, int]
"""Units that a request takes, by Unit."""


class QuotaLease:
    """A lease of units that counts down. Every instant is monotonic; a lease never drawn has no units."""

    __slots__ = (
        "_alone",
        "_at_grant",
        "_measured_at",
        "_own",
        "_rate",
        "_used",
        "bucket",
        "dry_below",
        "free_at",
        "left",
        "low",
        "meter",
        "on_loss",
        "owed",
        "remaining",
        "renew_at",
        "reset_at",
        "retry_at",
        "unit",
        "until",
    )

    def __init__(self, meter: Meter, unit: Unit, on_loss: OnLoss) -> None:
        self.meter = meter
        self.on_loss: OnLoss = on_loss
        self.unit = unit
        self.left = 0
        self.low = 0
        """Number of units below which more are fetched."""
        self.until = self.renew_at = 0.0
        self.bucket = NOW_BUCKET
        self.owed: dict[int, int] = {}
        """Units to report to the store next, by bucket, as in `Draw.returns`."""
        self.remaining = meter.limit
        """Units that no process had drawn at the last call to the store."""
        self.reset_at = 0.0
        self.retry_at = 0.0
        self.dry_below: int | None = None
        """Number of units that the store could not grant until `retry_at`."""
        self.free_at: float | None = None
        """Time at which units become available; None when they never do."""
        self._own: dict[int, int] = {}
        """Units that this process used or holds, by bucket; the only basis once the store is lost."""
        self._alone: tuple[float, int] | None = None
        """Time of the loss of the store, and this process' part of the limit since then; None with the store."""
        self._rate = 0.0
        self._at_grant = 0
        self._used = 0
        self._measured_at: float | None = None

    def configure(self, meter: Meter, on_loss: OnLoss) -> None:
        """Take over a new policy revision's numbers."""
        self.remaining += meter.limit - self.meter.limit
        self._alone = None
        self.meter = meter
        self.on_loss = on_loss

    def knows_dry(self, need: int, now: float) -> bool:
        """Return whether the store lately had too few units for this need, so that another call is useless."""
        return self.dry_below is not None and now < self.retry_at and need >= self.dry_below and need > self.left

    def give_back(self, bucket: int, units: int) -> None:
        """Return units of a request that needed fewer; a negative number charges more."""
        if bucket == self.bucket and self.left + units >= 0:
            self.left += units
        elif units > 0:
            self._owe(bucket, units)
        else:
            self.owed[NOW_BUCKET] = self.owed.get(NOW_BUCKET, 0) + units
            self._charge(self.bucket, -units)

    @property
    def is_tight(self) -> bool:
        """Return whether other processes may soon lack the units that this one holds."""
        return self.remaining < self.meter.limit * TIGHT_RATIO

    def has_news(self, now: float, requested_at: float) -> bool:
        """Return whether the lease has news for the store: at once when others may need units, else after a while."""
        rest = self.left if now >= self.until else 0
        if not rest and not self.owed:
            return False
        return self.is_tight or rest > self.meter.limit * SCRAP_RATIO or now >= requested_at + LAZY_S

    def draw(self, first: int, waiting: int, now: float, *, ahead: bool) -> Draw:
        """Return the draw to request from the store.

        Args:
            first: Units that the first waiting request needs.
            waiting: Units that all waiting requests need.
            now: Current time.
            ahead: True adds units that will be used soon.
        """
        self._learn_rate(now)
        is_over = now >= self.until or (self.is_tight and self.until - now > TIGHT_S)
        if self.left and (is_over or first > self.left):
            self._owe(self.bucket, self.left)
            self._at_grant = self.left = 0
        num_buckets = self._num_buckets_ahead()
        soon = int(self._rate * num_buckets * BUCKET_S) + 1
        # A call that is made anyway also requests all that will be short soon.
        is_short = waiting > self.left or self.left <= 2 * self.low or now >= self.renew_at - RENEW_EARLY_S
        want = waiting + soon if ahead and is_short and first <= self.meter.limit else 0
        owed, self.owed = self.owed, {}
        return Draw(self.meter, want, first, num_buckets, tuple(owed.items()))

    def take(self, requested: Draw, grant: Grant, requested_at: float, now: float, *, is_repeat: bool = False) -> None:
        """Take the store's grant; `requested_at` precedes its clock reading, so units never live too long here.

        The grant of a repeated exchange lacks what was drawn since without the store, so the part of then stays.
        """
        if not is_repeat:
            self._alone = None
        self._charge(grant.bucket, grant.units)
        self._hold(requested, grant, requested_at, now)

    def unconfirmed(self, requested: Draw, *, may_be_known: bool) -> None:
        """Handle a call that the store did not answer.

        A report that it may have received is not repeated where that could free units twice.
        """
        for bucket, units in requested.returns:
            if units < 0 or not may_be_known:
                self.owed[bucket] = self.owed.get(bucket, 0) + units

    def draw_alone(self, requested: Draw, num_holders: int, now: float, store_now: float) -> None:
        """Draw without the store; this process counts its use and reports it later."""
        counts = dict(self._own)
        share = self._share_alone(num_holders, now, store_now)
        grant = draw_units(counts, self._within(share, requested), store_now, 1)
        if not counts and requested.at_least <= self.meter.limit:
            # One request may be larger than the share. Nothing else is under way, so it is let through.
            grant = draw_units(counts, self._within(requested.at_least, requested), store_now, 1)
        if grant.units:
            self._owe(grant.bucket, -grant.units)
        self._hold(requested, grant, now, now)

    def _share_alone(self, num_holders: int, now: float, store_now: float) -> int:
        """Return this process' part of the limit without the store; the parts of all together are no more than it.

        At the loss that is what this process had drawn, and an even part of what nobody had. Draws of a minute expire,
        and the parts become even.
        """
        even = max(self.meter.limit // num_holders, 1)
        if self._alone is None:
            none = Draw(self.meter)
            drawn = self.meter.limit - draw_units(dict(self._own), none, store_now, 1).remaining
            self._alone = (now, drawn + max(self.remaining, 0) // num_holders)
        since, share = self._alone
        if self.meter.period is not Period.MINUTE or now < since + _MINUTE_S:
            return share
        return min(share, even) if now < since + 2 * _MINUTE_S else even

    def _within(self, share: int, requested: Draw) -> Draw:
        return Draw(Meter(self.meter.name, self.meter.period, share), requested.want, requested.at_least)

    def _num_buckets_ahead(self) -> int:
        """Return for how many buckets to draw ahead: as long as a small part of the remaining quota lasts.

        A tenant far from its limit thus draws seldom and holds little.
        """
        if self._rate <= 0.0:
            return MIN_AHEAD
        lasts_s = max(self.remaining, 0) * AHEAD_RATIO / self._rate
        return min(max(int(lasts_s / BUCKET_S), MIN_AHEAD), MAX_AHEAD)

    def _hold(self, requested: Draw, grant: Grant, requested_at: float, now: float) -> None:
        if grant.units:
            if self.left and grant.bucket != self.bucket:
                self._owe(self.bucket, self.left)
                self.left = 0
            self.bucket = grant.bucket
            self.left += grant.units
            self.until = requested_at + grant.usable_s
            self.renew_at = self.until - RENEW_AHEAD_S
        self.low = self.left // 4
        self._at_grant = self.left
        self.remaining = grant.remaining
        self.reset_at = now + grant.reset_s
        self._note_refusal(requested, grant, now)

    def _note_refusal(self, requested: Draw, grant: Grant, now: float) -> None:
        if grant.units >= requested.at_least:
            self.dry_below = None
            return
        self.dry_below = requested.at_least
        self.retry_at = now + min(RENEW_AFTER_S, grant.wait_s) if grant.wait_s != NEVER_S else now + RENEW_AFTER_S
        self.free_at = None if grant.wait_s == NEVER_S else now + grant.wait_s

    def _owe(self, bucket: int, units: int) -> None:
        """Queue units for the next report, returned or, if negative, used; they count here from now on."""
        self.owed[bucket] = self.owed.get(bucket, 0) + units
        self._charge(bucket, -units)

    def _charge(self, bucket: int, units: int) -> None:
        if bucket == NOW_BUCKET:
            return
        own = self._own
        own[bucket] = own.get(bucket, 0) + units
        if len(own) > _MAX_OWN_BUCKETS:
            for old in sorted(own)[: _MAX_OWN_BUCKETS // 2]:
                del own[old]

    def _learn_rate(self, now: float) -> None:
        """Update the units used a second, over about the last second; runs at every draw."""
        self._used += max(self._at_grant - self.left, 0)
        self._at_grant = self.left
        if self._measured_at is None:
            self._measured_at = now
        elapsed = now - self._measured_at
        if elapsed >= MEASURED_S:
            self._rate += (self._used / elapsed - self._rate) * min(elapsed / RATE_S, 1.0)
            self._used, self._measured_at = 0, now
