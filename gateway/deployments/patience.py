"""Patience: how long a deployment may be silent while somebody waits for a first byte.

A stream shows its first token when the prompt is read. A plain answer shows nothing before its end, so the bound is
the forecast of its longest form: the prompt, then as many tokens as the request allows.
"""

from __future__ import annotations

from typing import Final

from gateway.deployments.flight import InFlightRequest
from gateway.deployments.live import LiveDeployment

PLAIN_FACTOR: Final = 2.0
"""A plain answer may take so many times what its longest form is forecast to take."""
PROMPT_FACTOR: Final = 4.0
"""Its prompt may take so many times the forecast, as for a stream."""
LEAST_TOKENS: Final = 256
"""Length that is allowed for where neither the request nor earlier answers allow for more."""
MEAN_FACTOR: Final = 2.0
"""Where the request sets no limit, answers of so many times the usual length are allowed for."""
STRANGER_S: Final = 5.0
"""Shortest patience with a deployment that never answered: nothing is known of its speed."""
STRANGER_MOST_S: Final = 10.0
"""Longest patience with such a deployment where the request does not say how long its answer may be."""


def stream_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest | None) -> float | None:
    """Seconds within which the first token of a stream is expected; None: nothing is known of the deployment."""
    usual_s = live.first_bytes.late_s(now)
    if usual_s is None or flight is None:
        return usual_s
    return max(usual_s, flight.forecast_ttft_s)


def plain_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest, max_tokens: int | None) -> float:
    """Seconds within which a plain answer of up to `max_tokens` is whole, or the engine says that it computes."""
    report = live.forecast.report(now)
    prompt_s = PROMPT_FACTOR * flight.forecast_ttft_s
    if report is not None and report.silent_s is not None:  # each of the engine's steps is heard of
        return prompt_s
    tokens = max_tokens or max(int(MEAN_FACTOR * flight.price.output_tokens), LEAST_TOKENS)
    bound_s = prompt_s + PLAIN_FACTOR * tokens * live.forecast.tpot_s(now)
    if live.health.has_answered:
        return max(bound_s, PLAIN_FACTOR * live.whole_answers.peak)
    return max(bound_s if max_tokens else min(bound_s, STRANGER_MOST_S), STRANGER_S)


def hidden_stream_bound_s(flight: InFlightRequest) -> float:
    """Seconds within which the stream behind a plain answer begins at a deployment of which nothing is known."""
    return max(PROMPT_FACTOR * flight.forecast_ttft_s, STRANGER_S)
