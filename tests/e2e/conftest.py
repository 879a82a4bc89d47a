"""A whole running product for end-to-end tests: two engines and the gateway, as `penstock up` starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.otlp_collector import OtlpCollector

START_TIMEOUT_S = 240.0
"""Two engines import torch and warm up; on a busy machine that takes a while."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the running product listens."""

    url: str
    """Public listener, without the `/v1`."""
    admin_url: str
    pid: int
    log: Path
    traces: OtlpCollector
    """What of the traces that a test began arrived."""

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


def _addresses(log: Path) -> tuple[str, str] | None:
    text = log.read_text(errors="replace")
    public = re.search(r"curl (http://[0-9.]+:\d+)/v1", text)
    admin = re.search(r"admin on ([0-9.]+:\d+)", text)
    return (public[1], f"http://{admin[1]}") if public and admin else None


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"penstock up ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        found = _addresses(log)
        if found:
            try:
                if httpx.get(f"{found[0]}/readyz", timeout=2.0).status_code == 200:
                    return found
            except httpx.TransportError:
                pass  # still binding: the loop calls again until the deadline
        time.sleep(0.1)
    raise AssertionError(f"not ready within {START_TIMEOUT_S} s:\n{log.read_text()[-4000:]}")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """`penstock up` on free ports, in a directory of its own."""
    folder = tmp_path_factory.mktemp("stack")
    log = folder / "up.log"
    command = [
        sys.executable,
        "-m",
        "gateway",
        "up",
        "--port",
        "0",
        "--admin-port",
        "0",
        "--runtime-dir",
        str(folder / "run"),
        *("--small", "penstock-small", "--large", "penstock-large"),
    ]
    with OtlpCollector() as traces, log.open("wb") as sink:
        # Nothing is traced unless a test requests it with a sampled traceparent.
        traced = {"PENSTOCK_TELEMETRY_TRACE_OTLP_ENDPOINT": traces.url, "PENSTOCK_TELEMETRY_TRACE_SAMPLE_RATIO": "0"}
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **traced},
        )
        try:
            url, admin_url = _wait_until_ready(process, log)
            yield Stack(url=url, admin_url=admin_url, pid=process.pid, log=log, traces=traces)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
