"""Every bench runs for a second or two and says what it promises. Numbers are not judged here, only that they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = "engine/bundled/models/penstock-small"
CONDITIONS = {"commit", "hardware", "python", "arrivals", "bench", "failed"}


def bench(*arguments: str) -> dict[str, Any]:
    """The JSON line of a bench that succeeds."""
    command = [sys.executable, "-m", "loadtests", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record.keys() >= CONDITIONS
    assert record["failed"] is None
    assert isinstance(record, dict)
    return record


@pytest.mark.e2e
def test_overhead_measures_latency_throughput_and_cpu() -> None:
    record = bench("overhead", "--seconds", "2", "--connections", "8")
    assert record["failed_requests"] == 0
    assert record["requests_per_s"] > 10
    assert 1 < record["cpu_us_per_request"] < 100_000
    assert record["added_p50_ms"] > 0
    assert record["added_p99_ms"] > -1000
    assert record["upstream_requests_per_s"] > record["requests_per_s"]
    assert record["open_loop_p99_ms"] >= record["open_loop_p50_ms"] > 0


@pytest.mark.e2e
def test_streams_loses_none() -> None:
    record = bench("streams", "--seconds", "1", "--streams", "20")
    assert (record["streams"], record["lost"], record["chunks"]) == (20, 0, 400)
    assert record.keys() >= {"added_ttft_p50_ms", "added_gap_p99_ms", "cpu_us_per_chunk"}


@pytest.mark.e2e
def test_memory_fits_a_slope() -> None:
    record = bench("memory", "--requests", "400", "--connections", "4")
    assert (record["requests"], record["failed_requests"]) == (400, 0)
    assert record["rss_end_mib"] > 10
    assert "rss_slope_bytes_per_request" in record


@pytest.mark.e2e
def test_cancel_leaks_nothing() -> None:
    record = bench("cancel", "--seconds", "3", "--probes", "9", "--model", SMALL)
    assert (record["leaked"], record["stuck"]) == (0, 0)
    assert record["cancels"] > 20
    assert 0 < record["cancel_to_free_p50_ms"] <= record["cancel_to_free_p99_ms"]


@pytest.mark.e2e
def test_engine_is_compared_with_transformers() -> None:
    record = bench("engine", "--seconds", "1", "--model", SMALL, "--threads", "1")
    for batch in (1, 8):
        ratio = record[f"decode_b{batch}_tokens_per_s"] / record[f"reference_b{batch}_tokens_per_s"]
        assert record[f"decode_b{batch}_ratio"] == pytest.approx(ratio)
        assert ratio > 0.01


def test_an_unknown_bench_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, "-m", "loadtests", "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "overhead" in done.stderr


def test_a_process_that_cannot_start_is_reported_with_its_output() -> None:
    command = [sys.executable, "-m", "loadtests", "cancel", "--seconds", "1", "--model", "tests/loadtests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "engine ended while starting" in done.stderr


@pytest.mark.e2e
def test_a_bench_that_is_stopped_stops_its_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtests", "streams", "--seconds", "30", "--streams", "2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob("*/gateway.log")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert list(tmp_path.iterdir()) == []
    assert not [pid for pid in _pids() if str(tmp_path) in _command_line(pid)]


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""  # it ended while we looked
