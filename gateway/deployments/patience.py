"""Patience: silence that is allowed to a deployment while a request waits for its first byte.

A stream shows its first token when the prompt is computed. A response without a stream shows nothing before its end.
Its bound is the forecast of its longest form: the prompt, then as many tokens as the request allows.
"""

from __future__ import annotations

from typing import Final

from gateway.deployments.flight import InFlightRequest
from gateway.deployments.live import LiveDeployment

PLAIN_FACTOR: Final = 2.0
"""Multiple of the forecast of its longest form that a response without a stream may take."""
PROMPT_FACTOR: Final = 4.0
"""Multiple of the forecast that the prompt may take, as for a stream."""
LEAST_TOKENS: Final = 256
"""Length allowed for where neither the request nor earlier answers allow more."""
MEAN_FACTOR: Final = 2.0
"""Multiple of the usual length allowed for where the request sets no limit."""
STRANGER_S: Final = 5.0
"""Shortest patience in seconds with a deployment that never responded, whose speed is unknown."""
STRANGER_MOST_S: Final = 10.0
"""Longest patience in seconds with such a deployment where the request sets no limit on its answer."""


def stream_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest | None) -> float | None:
    """Return the seconds within which a stream's first token is expected, or None for an unknown deployment."""
    usual_s = live.first_bytes.late_s(now)
    if usual_s is None or flight is None:
        return usual_s
    return max(usual_s, flight.forecast_ttft_s)


def plain_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest, max_tokens: int | None) -> float:
    """Return the seconds within which a response of up to `max_tokens` is due.

    For an engine that reports its steps, that is the bound on the prompt.
    """
    report = live.forecast.report(now)
    prompt_s = PROMPT_FACTOR * flight.forecast_ttft_s
    if report is not None and report.silent_s is not None:  # the engine reports each of its steps
        return prompt_s
    tokens = max_tokens or max(int(MEAN_FACTOR * flight.price.output_tokens), LEAST_TOKENS)
    bound_s = prompt_s + PLAIN_FACTOR * tokens * live.forecast.tpot_s(now)
    if live.health.has_answered:
        return max(bound_s, PLAIN_FACTOR * live.whole_answers.peak)
    return max(bound_s if max_tokens else min(bound_s, STRANGER_MOST_S), STRANGER_S)


def hidden_stream_bound_s(flight: InFlightRequest) -> float:
    """Return the seconds within which a stream behind a response without one begins, at an unknown deployment."""
    return max(PROMPT_FACTOR * flight.forecast_ttft_s, STRANGER_S)
