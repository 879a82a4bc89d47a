"""Product of the matrix: `penstock up` with the shipped policy, and one generic upstream beside the engines."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn
import yaml

from tests.clients.tool_caller import application

SHIPPED: Final = Path(__file__).resolve().parents[2] / "routing_policies" / "presets" / "bundled.yaml"
START_TIMEOUT_S: Final = 240.0
_STOP_TIMEOUT_S: Final = 40.0


@contextmanager
def running_product(folder: Path) -> Iterator[dict[str, str]]:
    """Start everything in a folder; yield the environment that client scripts read."""
    with _upstream() as upstream:
        policy = folder / "policy.yaml"
        policy.write_text(_with_agent(SHIPPED.read_text(), upstream))
        log = folder / "up.log"
        command = [sys.executable, "-m", "gateway", "up", "--port", "0", "--admin-port", "0"]
        command += ["--runtime-dir", str(folder / "run"), "--policy", str(policy)]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            url = _ready(process, log)
            yield {"PENSTOCK_URL": url, "PENSTOCK_KEY": "unused", "PENSTOCK_ENCODER": _encoder_at(url)}
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _with_agent(text: str, url: str) -> str:
    """Return the policy with the generic upstream as a deployment; its model is requested by name."""
    document: dict[str, Any] = yaml.safe_load(text)
    document["deployments"].append({"id": "agent", "url": url, "model": "agent", "limits": {"max_in_flight": 16}})
    return yaml.safe_dump(document)


def _encoder_at(url: str) -> str:
    """Return the first model with embeddings; an empty name where there is none."""
    for model in httpx.get(f"{url}/v1/models", timeout=30.0).raise_for_status().json()["data"]:
        if "embeddings" in str(model.get("capabilities", "")):
            return str(model["id"])
    return ""


@contextmanager
def _upstream() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="upstream")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the public address once the product answers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if process.poll() is not None:
            raise AssertionError(f"penstock up ended with {process.returncode}:\n{text[-4000:]}")
        found = re.search(r"curl (http://[0-9.]+:\d+)/v1", text)
        if found is not None:
            try:
                if httpx.get(f"{found[1]}/readyz", timeout=2.0).status_code == 200:
                    return found[1]
            except httpx.TransportError:
                pass  # still binding: the loop calls again until the deadline
        time.sleep(0.1)
    raise AssertionError(f"not ready within {START_TIMEOUT_S} s:\n{log.read_text()[-4000:]}")
