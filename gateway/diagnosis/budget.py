"""LatencyBudget: the mean time before the first token, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.diagnosis.samples import Distribution
from gateway.diagnosis.window import Window

Spread = Callable[..., Distribution]

_FETCHED: Final = ("miss", "bypass")
_DECIDING: Final = ("admit", "route")
_SENT: Final = ("connect", "upstream_first_byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBudget:
    """Mean seconds of each part, and the number of requests behind them."""

    num_requests: float
    ttft_s: float
    wait_s: float
    """Seconds of waiting for a permit in the gateway."""
    read_s: float
    """Seconds of reading and trimming; both grow with the prompt."""
    embed_s: float
    """Seconds of embedding that delayed the request; a lookup beside the upstream delays nothing."""
    deciding_s: float
    front_s: float
    """Seconds in the engine before its queue: template and tokenizer."""
    engine_queue_s: float
    prefill_s: float
    path_s: float
    """Seconds between gateway and engine: the latency that the gateway saw, less the one that the engine reports."""

    @property
    def preprocessing_s(self) -> float:
        """Seconds of all work on the prompt before its computation."""
        return self.read_s + self.embed_s + self.front_s


def budget_now(window: Window) -> LatencyBudget:
    """Return the budget inside the window."""
    return _budget(window.spread, window.engine_spread)


def budget_before(window: Window) -> LatencyBudget:
    """Return the budget before the window."""
    return _budget(window.spread_before, window.engine_spread_before)


def first_tokens(spread: Spread) -> Distribution:
    """Return the times to first token of answers that a deployment generated."""
    merged = Distribution()
    for cache in _FETCHED:
        merged += spread("penstock_ttft_seconds", cache=cache)
    return merged


def _budget(spread: Spread, engine: Spread) -> LatencyBudget:
    ttft = first_tokens(spread)
    num_read = max(1.0, spread("penstock_stage_seconds", stage="read").count)

    def stages(*names: str) -> float:
        return sum(spread("penstock_stage_seconds", stage=name).total for name in names) / num_read

    wait = spread("penstock_stage_seconds", stage="queue")
    wait_s, deciding_s = wait.mean, stages(*_DECIDING)
    read_s = stages("read", "trim", "cache")
    sent_s = sum(spread("penstock_stage_seconds", stage=name).mean for name in _SENT)
    unexplained_s = max(0.0, ttft.mean - wait_s - deciding_s - read_s - sent_s)
    embed_s = min(spread("penstock_stage_seconds", stage="embed").mean, unexplained_s)
    engine_ttft, queue_s, prefill_s = (engine(f"engine_{name}_seconds").mean for name in ("ttft", "queue", "prefill"))
    upstream_s = max(0.0, ttft.mean - wait_s - deciding_s - read_s - embed_s)
    return LatencyBudget(
        num_requests=ttft.count,
        ttft_s=ttft.mean,
        wait_s=wait_s,
        read_s=read_s,
        embed_s=embed_s,
        deciding_s=deciding_s,
        front_s=max(0.0, engine_ttft - queue_s - prefill_s),
        engine_queue_s=queue_s,
        prefill_s=prefill_s,
        path_s=max(0.0, upstream_s - engine_ttft),
    )
