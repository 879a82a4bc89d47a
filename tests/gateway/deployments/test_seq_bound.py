"""How many requests a deployment may have at once."""

from __future__ import annotations

import pytest

from gateway.deployments.forecast import DeploymentForecast
from gateway.deployments.load_report import LoadReport
from gateway.deployments.seq_bound import seqs_within

LOOSE_S, TIGHT_S = 100.0, 0.025
"""A time between tokens that any number of rows keeps, and one that few do before anything was learned."""


@pytest.mark.parametrize(("max_num_seqs", "expected"), [(64, 60), (8, 8), (0, None)])
def test_no_more_than_the_engine_gives_rows_to(max_num_seqs: int, expected: int | None) -> None:
    forecast = DeploymentForecast()
    forecast.note_report(0.0, LoadReport(max_num_seqs=max_num_seqs))
    assert seqs_within(forecast, 0.0, LOOSE_S) == expected


def test_the_tighter_of_rows_and_pace_counts() -> None:
    forecast = DeploymentForecast()
    paced = seqs_within(forecast, 0.0, TIGHT_S)
    assert paced is not None
    forecast.note_report(0.0, LoadReport(max_num_seqs=1024))
    assert seqs_within(forecast, 0.0, TIGHT_S) == paced
    assert forecast.tpot_s(0.0, paced) <= TIGHT_S < forecast.tpot_s(0.0, paced + 1)
