"""The refusals of a quota, in words: which limit, and what to do."""

from __future__ import annotations

from gateway.admission.quotas.lease import NANO, QuotaLease, Unit
from gateway.errors import MIN_RETRY_AFTER_S, BudgetSpent, QuotaExceeded, RateLimited
from gateway.store.meter import Period

IN_FLIGHT = "max_in_flight"
"""The limit on requests under way, as the policy names it."""


def nothing_left(tenant: str, part: QuotaLease, need: int, now: float) -> QuotaExceeded:
    """Return the refusal of a limit that lately had no room for `need` units."""
    meter, who = part.meter, f"Tenant '{tenant}'"
    limit = f"{_shown(meter.limit, part.unit)} a {meter.period}"
    if meter.period is not Period.MINUTE:
        message = f"{who} has used its budget of {limit}. It begins anew when the {meter.period} (UTC) is over."
        return BudgetSpent(meter.name, message)
    if part.free_at is None:
        message = f"{who} may use {limit}, and this request alone needs about {need}. Shorten it."
        return RateLimited(meter.name, message, wait_s=None)
    wait_s = max(part.free_at - now, 0.0)
    message = f"{who} has reached its limit of {limit}. Try again in {wait_s:.0f} s."
    return RateLimited(meter.name, message, wait_s=wait_s)


def too_many_under_way(tenant: str, limit: int | None) -> RateLimited:
    """Return the error for a tenant with as many requests in flight as it may have."""
    message = (
        f"Tenant '{tenant}' has {limit} requests under way, as many as it may. Send this one when another has ended."
    )
    return RateLimited(IN_FLIGHT, message, wait_s=MIN_RETRY_AFTER_S)


def unchecked(tenant: str, limit: str) -> RateLimited:
    """Return the refusal for a lost store, where the policy refuses rather than leave this limit unchecked."""
    message = f"The limit {limit} of tenant '{tenant}' cannot be checked at the moment. Try again."
    return RateLimited(limit, message, wait_s=MIN_RETRY_AFTER_S)


def too_contended(tenant: str) -> RateLimited:
    """Return the refusal of a request whose granted units other requests took again and again."""
    message = f"Too many requests of tenant '{tenant}' compete for the last of its limit. Try again."
    return RateLimited("contended", message, wait_s=MIN_RETRY_AFTER_S)


def _shown(limit: int, unit: Unit) -> str:
    if unit is Unit.NANO:
        return f"a cost of {limit / NANO:g}"
    return f"{limit} {'requests' if unit is Unit.REQUEST else 'tokens'}"
