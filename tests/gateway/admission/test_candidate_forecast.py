"""Admission and routing share their forecasts: a request's candidates are checked once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.deployments.forecast import DeploymentForecast
from tests.gateway.stack import chat, policy_text, running

FIRST = "policy: first_available, candidates: [small, large]"


class ForecastCounter:
    """Counts the forecasts that are made before a request is sent; sending makes one more, of the one it goes to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[DeploymentForecast] = Counter()
        self._is_sending = False
        look, note_sent = DeploymentForecast.look, DeploymentForecast.note_sent

        def counted(forecast: DeploymentForecast, *given: Any, **named: Any) -> Any:
            if not self._is_sending:
                self.counts[forecast] += 1
            return look(forecast, *given, **named)

        def sent(forecast: DeploymentForecast, *given: Any, **named: Any) -> Any:
            self._is_sending = True
            try:
                return note_sent(forecast, *given, **named)
            finally:
                self._is_sending = False

        patch.setattr(DeploymentForecast, "look", counted)
        patch.setattr(DeploymentForecast, "note_sent", sent)


@pytest.mark.parametrize(
    "select",
    [
        "policy: latency_first, candidates: [small, large]",
        "policy: scored, candidates: [small, large], weights: {latency: 1}",
    ],
)
async def test_each_candidate_of_a_request_is_forecast_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str
) -> None:
    policy = policy_text(tmp_path).replace("weight: 8,", "weight: 8, slo: {ttft_p95_ms: 60000},")
    async with running(tmp_path, policy=policy.replace(FIRST, select)) as stack:
        assert (await stack.call(chat(stream=True))).status == 200
        forecasts = ForecastCounter(monkeypatch)
        assert (await stack.call(chat(stream=True))).status == 200
    assert sorted(forecasts.counts.values()) == [1, 1]
