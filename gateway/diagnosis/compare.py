"""Comparisons by prompt length, by deployment and by tenant, each beside its own past."""

from __future__ import annotations

from gateway.diagnosis.finding import Compared
from gateway.diagnosis.window import Window

_TTFT = "penstock_ttft_seconds"
_TPOT = "penstock_tpot_seconds"
_BUCKETS = ("0-256", "256-1k", "1k-4k", "4k-16k", "16k+")
_TOKENS = ("penstock_prompt_tokens_total", "penstock_completion_tokens_total")


def compare_prompts(window: Window) -> tuple[Compared, ...]:
    """Return the latencies of each prompt bucket with requests, shortest first."""
    return tuple(found for bucket in _BUCKETS if (found := _latencies(window, "prompt_bucket", bucket)).num_requests)


def compare_deployments(window: Window) -> tuple[Compared, ...]:
    """Return the latencies of each deployment with requests, by name."""
    names = sorted(window.last.gateway.values_of(_TTFT, "deployment") - {"cache"})
    return tuple(found for name in names if (found := _latencies(window, "deployment", name)).num_requests)


def compare_tenants(window: Window) -> tuple[Compared, ...]:
    """Return the tenants by their share of the window's tokens, largest first."""
    names = window.last.gateway.values_of(_TOKENS[0], "tenant")
    tokens = {name: sum(window.counted(counter, tenant=name) for counter in _TOKENS) for name in names}
    total = sum(tokens.values())
    if total <= 0:
        return ()
    ranked = sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Compared(key=name, token_ratio=count / total) for name, count in ranked if count > 0)


def _latencies(window: Window, label: str, value: str) -> Compared:
    where = {label: value}
    ttft, tpot = window.spread(_TTFT, **where), window.spread(_TPOT, **where)
    return Compared(
        key=value,
        num_requests=window.spread("penstock_total_seconds", **where).count,
        ttft_s=ttft.mean,
        baseline_ttft_s=window.spread_before(_TTFT, **where).mean,
        tpot_s=tpot.mean,
        baseline_tpot_s=window.spread_before(_TPOT, **where).mean,
    )
