"""The `x-ratelimit-*` headers: state of a tenant's limits per minute."""

from __future__ import annotations

from typing import Final

from gateway.admission.quotas.lease import Unit
from gateway.admission.quotas.tenant_quota import TenantQuota
from gateway.store.meter import Period

Header = tuple[bytes, bytes]

_NAMES: Final = {
    Unit.REQUEST: (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
    Unit.TOKEN: (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
}


def rate_limit_headers(quota: TenantQuota, now: float) -> list[Header]:
    """Return each limit, the units left at the last call to the store, and the time until the whole limit is free."""
    headers: list[Header] = []
    for part in quota.slices:
        meter = part.meter
        if meter.period is Period.MINUTE:
            limit, remaining, reset = _NAMES[part.unit]
            headers.append((limit, b"%d" % meter.limit))
            headers.append((remaining, b"%d" % max(min(part.remaining + part.left, meter.limit), 0)))
            headers.append((reset, duration(part.reset_at - now)))
    return headers


def duration(seconds: float) -> bytes:
    """Return a duration as `12ms`, `7.66s` or `6m0s`; never negative."""
    if seconds < 1.0:
        return b"%dms" % max(round(seconds * 1000), 0)
    if seconds < 60.0:
        return b"%ss" % f"{seconds:.2f}".rstrip("0").rstrip(".").encode("ascii")
    minutes, rest = divmod(round(seconds), 60)
    return b"%dm%ds" % (minutes, rest)
