"""Finding for requests that deployments fail: by errors, broken connections or timeouts.

Failures are compared with a bound and with no baseline, because a long incident would be its own baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.diagnosis.finding import Finding, FindingEvidence
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.window import Window

FAILED_RATIO: Final = 0.02
"""Share of a deployment's requests above which their failures are a finding."""
_REQUESTS: Final = "penstock_requests_total"
_EJECTIONS: Final = "penstock_ejections_total"
_FAILED: Final = ("upstream_failed", "upstream_timeout", "failed")
_NOBODY: Final = "(none chosen)"
_MAX_NAMED: Final = 5


def failed_ratios(window: Window) -> dict[str, float]:
    """Return the share of failed requests of each deployment with any, highest first; "" is none chosen."""
    found: dict[str, float] = {}
    for name in sorted(window.last.gateway.values_of(_REQUESTS, "deployment") - {"cache"}):
        num_failed = sum(window.counted(_REQUESTS, deployment=name, outcome=outcome) for outcome in _FAILED)
        if num_failed > 0:
            found[name] = num_failed / window.counted(_REQUESTS, deployment=name)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def find_failing(window: Window, place: PolicyLines, ratios: Mapping[str, float]) -> Finding | None:
    """Return the finding for deployments whose share of failed requests exceeds FAILED_RATIO, or None."""
    failing = {name: ratio for name, ratio in ratios.items() if ratio > FAILED_RATIO}
    if not failing:
        return None
    worst, shown = next(iter(failing)), list(failing)[:_MAX_NAMED]
    names = ", ".join(name or _NOBODY for name in shown) + (" and others" if len(failing) > len(shown) else "")
    share = f"up to {failing[worst]:.0%}" if len(failing) > 1 else f"{failing[worst]:.0%}"
    taken_out = tuple(
        FindingEvidence(f"times {name} was taken out", num, 0.0, "bound", "count")
        for name in sorted(window.last.gateway.values_of(_EJECTIONS, "deployment"))
        if (num := window.counted(_EJECTIONS, deployment=name)) > 0
    )[:_MAX_NAMED]
    timeouts = sum(window.counted(_REQUESTS, deployment=name, outcome="upstream_timeout") for name in failing)
    late = (FindingEvidence("of them timed out", timeouts, 0.0, "bound", "count"),) if timeouts else ()
    return Finding(
        stage="upstream",
        cause="upstream_failing",
        summary=f"Requests fail at {names}: {share} of them.",
        evidence=(
            *(
                FindingEvidence(f"failed at {name or _NOBODY}", failing[name], FAILED_RATIO, "bound", "ratio")
                for name in shown
            ),
            *late,
            *taken_out,
        ),
        lever="penstock explain ID shows one of them (page Requests, by outcome); then see the server's own log. "
        "Drain it where others can serve, or add a fallback.",
        policy_path=place.at(worst).route_path("select.fallback") if worst else place.route_path("select.candidates"),
    )
