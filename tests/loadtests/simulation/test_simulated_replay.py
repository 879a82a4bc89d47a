"""A recorded trace in virtual time."""

from __future__ import annotations

import argparse
import gzip
import random
from datetime import datetime, timedelta
from pathlib import Path

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.overload.workload import TRACES
from loadtests.simulation import simulate
from loadtests.simulation.simulated_replay import run_replay

START = datetime(2024, 1, 1)


def write_trace(folder: Path) -> None:
    """Conversations of a few hundred requests, recorded as the public traces are."""
    rng = random.Random(1)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for number in range(400):
        at = START + timedelta(seconds=number * 0.1)
        lines.append(f"{at.isoformat(timespec='microseconds')},{rng.randrange(20, 2500)},{rng.randrange(5, 200)}")
    (folder / TRACES["azure-conv"]).write_bytes(gzip.compress("\n".join(lines).encode()))


def replayed(folder: Path) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    options = ["--replay", "azure-conv", "--data", str(folder), "--engines", "1", "--load", "0.5", "--seconds", "20"]
    card = run_replay(parser.parse_args(options), EngineShape(), Slo(ttft_s=1.0, tpot_s=0.04))
    assert card.failed is None
    return dict(card.results)


def test_a_recorded_trace_is_answered_in_time_and_forecast_well(tmp_path: Path) -> None:
    write_trace(tmp_path)
    found = replayed(tmp_path)
    assert found["failed_requests"] == 0
    assert isinstance(found["good_share"], float)
    assert found["good_share"] > 0.95
    assert isinstance(found["ttft_forecast_error_p90"], float)
    assert found["ttft_forecast_error_p90"] <= 0.35
    assert replayed(tmp_path) == found, "the same trace gives the same run"
