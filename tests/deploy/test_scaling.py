"""What the autoscaler calls: by itself, whatever rules Prometheus has, and a number whatever was counted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.promql import reads, scaling_queries

_PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
QUERIES = dict(scaling_queries())
WAITS = 'penstock_queue_wait_seconds_bucket{lane="interactive",instance="g1",'
IDLE, TWO_SECONDS = "0+0x20", "0+60x20"


def series(waiting: str, busy: str) -> list[dict[str, str]]:
    """Ten minutes of a gateway: waits of one to two seconds, and whose permits are out."""
    found = {f'{WAITS}le="1"}}': IDLE, f'{WAITS}le="2"}}': waiting, f'{WAITS}le="+Inf"}}': waiting}
    for model in ("small", "large"):
        for name, value in (("in_flight", 60 if model == busy else 1), ("concurrency_limit", 64)):
            found[f'penstock_{name}{{deployment="{model}-0",instance="g1"}}'] = f"{value}+0x20"
        found[f'penstock_deployment_ready{{deployment="{model}-0",instance="g1"}}'] = "1+0x20"
        # A pod that is not there yet lends nobody a permit.
        found[f'penstock_concurrency_limit{{deployment="{model}-1",instance="g1"}}'] = "64+0x20"
        found[f'penstock_deployment_ready{{deployment="{model}-1",instance="g1"}}'] = "0+0x20"
    return [{"series": name, "values": values} for name, values in found.items()]


def test_the_scaler_reads_what_gateways_give_and_nothing_that_a_rule_would_have_to_record() -> None:
    assert QUERIES.keys() == {"engine-small", "engine-large"}
    assert [metric for expr in QUERIES.values() for metric in reads(expr) if ":" in metric] == []


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {"engine-small": 0.0, "engine-large": 0.0}),
        (series(IDLE, busy="large"), {"engine-small": 0.0, "engine-large": 0.0}),
        (series(TWO_SECONDS, busy="large"), {"engine-small": 0.0, "engine-large": 1.95}),
        (series(TWO_SECONDS, busy="small"), {"engine-small": 1.95, "engine-large": 0.0}),
    ],
    ids=["nothing was ever asked", "nobody asks now", "the large ones are full", "the small ones are full"],
)
def test_engines_follow_the_wait_where_their_own_permits_are_out(
    given: list[dict[str, str]], expected: dict[str, float], tmp_path: Path
) -> None:
    assert _PROMTOOL is not None
    requested = [
        {"expr": expr, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": expected[name]}]}
        for name, expr in QUERIES.items()
    ]
    file = tmp_path / "scaling.test.yaml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": requested}]})
    )
    done = subprocess.run([_PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
