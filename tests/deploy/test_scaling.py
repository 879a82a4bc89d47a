"""What the autoscaler calls: by itself, whatever rules Prometheus has, and a number whatever was counted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.promql import reads, scaling_queries
from tests.deploy.recording import FILE as RECORDING
from tests.deploy.recording import NAMES

_PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
QUERIES = {name.removeprefix("ha "): expr for name, expr in scaling_queries() if name.startswith("ha ")}
"""The overlay `ha`: half a second of wait is accepted, one engine in reserve."""
WAITS = 'penstock_queue_wait_seconds_bucket{lane="interactive",instance="g1",'
IDLE, TWO_SECONDS = "0+0x20", "0+60x20"


def series(waiting: str, busy: str, *, ready: int = 1) -> list[dict[str, str]]:
    """Ten minutes of a gateway: waits of one to two seconds, and whose permits are out."""
    found = {f'{WAITS}le="1"}}': IDLE, f'{WAITS}le="2"}}': waiting, f'{WAITS}le="+Inf"}}': waiting}
    for model in ("small", "large"):
        for index in range(4):
            labels = f'{{deployment="{model}-{index}",instance="g1"}}'
            # A pod that is not there yet lends nobody a permit.
            there = index < ready
            found[f"penstock_in_flight{labels}"] = f"{(60 if model == busy else 2) if there else 0}+0x20"
            found[f"penstock_concurrency_limit{labels}"] = "64+0x20"
            found[f"penstock_deployment_ready{labels}"] = f"{int(there)}+0x20"
    return [{"series": name, "values": values} for name, values in found.items()]


def test_the_scaler_reads_what_gateways_give_and_nothing_that_a_rule_would_have_to_record() -> None:
    engines = ("engine-small", "engine-large")
    assert QUERIES.keys() == {f"{name} {kind}" for name in engines for kind in ("queue-wait", "occupancy")}
    assert [metric for _, expr in scaling_queries() for metric in reads(expr) if ":" in metric] == []


def evaluated(
    given: list[dict[str, str]], expected: dict[str, float], folder: Path, at: str = "10m", interval: str = "1m"
) -> str:
    """What promtool says of the queries over these series: empty where each has its expected value."""
    assert _PROMTOOL is not None
    requested = [
        {"expr": QUERIES[name], "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
        for name, value in expected.items()
    ]
    file = folder / "scaling.test.yaml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": interval, "input_series": given, "promql_expr_test": requested}]})
    )
    done = subprocess.run([_PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def wanted(wait_small: float, wait_large: float, busy_small: float, busy_large: float) -> dict[str, float]:
    return {
        "engine-small queue-wait": wait_small,
        "engine-large queue-wait": wait_large,
        "engine-small occupancy": busy_small,
        "engine-large occupancy": busy_large,
    }


FULL, LIGHT = 60 / 64 / 0.8, 2 / 64 / 0.8


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], wanted(0, 0, 1, 1)),
        (series(IDLE, busy="large", ready=0), wanted(0, 0, 1, 1)),
        (series(IDLE, busy="large"), wanted(0, 0, LIGHT + 1, FULL + 1)),
        (series(TWO_SECONDS, busy="large"), wanted(0, 2, LIGHT + 1, FULL + 1)),
        (series(TWO_SECONDS, busy="small"), wanted(2, 0, FULL + 1, LIGHT + 1)),
        (series(TWO_SECONDS, busy="small", ready=3), wanted(6, 0, 3 * FULL + 1, 3 * LIGHT + 1)),
    ],
    ids=["no request ever", "no engine is ready", "no request waits", "large ones full", "small ones full", "three"],
)
def test_engines_follow_the_wait_where_their_own_permits_are_out_and_one_is_in_reserve(
    given: list[dict[str, str]], expected: dict[str, float], tmp_path: Path
) -> None:
    assert evaluated(given, expected, tmp_path) == ""


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed")
def test_an_engine_whose_name_begins_with_anothers_name_does_not_count_for_it(tmp_path: Path) -> None:
    other = [
        {**one, "series": one["series"].replace('"small-', '"small-fast-')}
        for one in series(TWO_SECONDS, busy="small", ready=3)
        if '"small-' in one["series"]
    ]
    expected = wanted(0, 2, LIGHT + 1, FULL + 1)
    assert evaluated(series(TWO_SECONDS, busy="large") + other, expected, tmp_path) == ""


def recorded() -> list[dict[str, str]]:
    """The recording as promtool takes it: a gateway called g1, one value each fifteen seconds."""
    found: dict[str, list[float | None]] = json.loads(RECORDING.read_text())
    return [
        {
            "series": name.replace("}", ',instance="g1"}'),
            "values": " ".join("_" if value is None else repr(value) for value in values),
        }
        for name, values in found.items()
    ]


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("at", "waits", "busy"),
    [("45s", False, False), ("2m30s", True, True), ("3m30s", True, True), ("7m45s", False, False)],
    ids=["before", "after a minute and a half", "at the end", "afterwards"],
)
def test_the_scaler_follows_what_a_gateway_under_load_recorded(
    at: str, waits: bool, busy: bool, tmp_path: Path
) -> None:
    # Waits of over a second are more than twice what is accepted: two engines for the one. All permits are out.
    expected = wanted(2 if waits else 0, 0, 1 / 0.8 + 1 if busy else 1, 1)
    assert evaluated(recorded(), expected, tmp_path, at, interval="15s") == ""


def test_the_recording_holds_what_the_scaler_reads_and_nothing_else() -> None:
    names = {name.partition("{")[0] for name in json.loads(RECORDING.read_text())}
    assert names == {metric for expr in QUERIES.values() for metric in reads(expr)} == set(NAMES)
