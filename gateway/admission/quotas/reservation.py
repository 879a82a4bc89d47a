"""Reservation: one request's part of its tenant's quota, until it is settled or cancelled, exactly once."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.admission.quotas.lease import Needs, QuotaLease


class Held(Protocol):
    """An owner of units that a reservation holds."""

    def ended(self) -> None:
        """Note that a reservation has ended."""
        ...


class Reservation(msgspec.Struct, eq=False):
    """A reservation ends with `settle` or `cancel`, whichever comes first; a second end does nothing."""

    _quota: Held | None
    _taken: list[tuple[QuotaLease, int]]
    """Origin of the units: each lease, and which of its buckets."""
    _needs: Needs

    @property
    def is_open(self) -> bool:
        """Return whether the reservation has not ended yet."""
        return self._quota is not None

    @property
    def tokens(self) -> int:
        """Return the number of tokens reserved."""
        return self._needs[1]

    @property
    def nano(self) -> int:
        """Return the billionths of the currency reserved."""
        return self._needs[2]

    def settle(self, tokens: int, nano: int = 0) -> None:
        """Settle a served request with its tokens and cost; the difference is returned or charged."""
        self._end((1, tokens, nano))

    def cancel(self) -> None:
        """Cancel a request that was not served, and return everything."""
        self._end((0, 0, 0))

    def _end(self, used: Needs) -> None:
        quota, self._quota = self._quota, None
        if quota is None:
            return
        needs = self._needs
        for part, bucket in self._taken:
            units = needs[part.unit] - used[part.unit]
            if units:
                part.give_back(bucket, units)
        quota.ended()
