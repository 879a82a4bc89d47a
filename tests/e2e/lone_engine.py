"""One real engine with a bundled model, front and core as separate processes, without a gateway."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_TIMEOUT_S = 240.0
MODELS = Path(__file__).resolve().parents[2] / "engine/bundled/models"


@dataclass(frozen=True, slots=True)
class LoneEngine:
    """Where it listens."""

    path: Path
    pid: int

    def client(self) -> httpx.Client:
        """A client; close it."""
        transport = httpx.HTTPTransport(uds=str(self.path))
        return httpx.Client(transport=transport, base_url="http://engine", timeout=httpx.Timeout(120.0))

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith((name + " ", name + "{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def core_pid(self) -> int:
        """The core's process id."""
        (pid,) = self.core_pids()
        return pid

    def core_pids(self) -> list[int]:
        """Of the core and the standbys, the oldest first."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [
            int(child) for child in children if b"engine.core\0--socket" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    def start_phases(self) -> dict[str, float]:
        """Seconds of each phase of the last start."""
        with self.client() as client:
            return {phase["name"]: phase["seconds"] for phase in client.get("/startupz").json()["phases"]}

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Raises AssertionError when it takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._is_listening():
                with self.client() as client:
                    if client.get("/readyz").status_code == 200:
                        return
            time.sleep(0.1)
        raise AssertionError(f"the engine was not ready within {timeout_s:g} s")

    def _is_listening(self) -> bool:
        """httpx leaves its socket open when nobody listens, so that is called without it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(str(self.path)) == 0


@contextmanager
def lone_engine(folder: Path, *flags: str, model: str = "small") -> Iterator[LoneEngine]:
    """`penstock engine` with a bundled model, on a socket in `folder`."""
    path = folder / "engine.sock"
    found = str(MODELS / f"penstock-{model}")
    command = [sys.executable, "-m", "engine", "--model", found, "--name", model, "--listen", f"unix:{path}"]
    command += ["--num-threads", "1", "--log-level", "info", *flags]
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            engine = LoneEngine(path, process.pid)
            engine.wait_until_ready()
            yield engine
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
