"""The measured share of wrong similar answers of the summary: that of the route where it is highest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.cache.audit.route_stats import RouteStats, TenantRoute


def worst_error(route_stats: Iterable[tuple[TenantRoute, RouteStats]]) -> dict[str, Any] | None:
    """Return the worst route's error; None where nothing was audited yet."""
    found = [(whose, stats.evidence.served()) for whose, stats in route_stats]
    audited = [(whose, estimate) for whose, estimate in found if estimate.num_audited]
    if not audited:
        return None
    whose, worst = max(audited, key=lambda pair: pair[1].ratio)
    return {
        "tenant": whose.tenant,
        "route": whose.route,
        "ratio": worst.ratio,
        "low": worst.low,
        "high": worst.high,
        "audits": worst.num_audited,
    }
