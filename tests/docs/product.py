"""A running product that the blocks of the docs talk to, and the shell that they run in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import httpx

from tests.docs.blocks import ROOT, Block

ENGINE_MODULE: Final = "loadtests.engines.engine_server"
POLICY: Final = Path(__file__).with_name("policy.yaml")
START_TIMEOUT_S: Final = 60.0
BLOCK_TIMEOUT_S: Final = 60.0

_PRELUDE: Final = f"""\
set -eu
unset PYTHONPATH  # readers have none; commands of this project are those of this checkout all the same
python() {{ PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} "$@"; }}
# What serves until a signal is started, awaited and stopped.
penstock() {{
  case "$1 ${{2:-}}" in
    "up "*|"gateway "*|"engine --"*) python -m tests.docs.until_listening "$@" ;;
    *) python -m gateway "$@" ;;
  esac
}}
"""


@dataclass(frozen=True, slots=True)
class Product:
    """What is running, on free ports."""

    public: str
    """`host:port` of the listener for clients."""
    admin: str
    runtime_dir: Path

    def run(self, block: Block, folder: Path) -> str:
        """Run a block in a folder and return what it printed; AssertionError when it fails."""
        text = block.text.replace("127.0.0.1:8080", self.public).replace("127.0.0.1:8081", self.admin)
        argv = ["bash", "-c", _PRELUDE + text] if block.language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{block.place} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Variables that stand for the defaults which the docs rely on."""
        return {
            "PYTHONPATH": str(ROOT),
            "PENSTOCK_PUBLIC_LISTEN": self.public,
            "PENSTOCK_ADMIN_LISTEN": self.admin,
            "PENSTOCK_PROCESS_RUNTIME_DIR": str(self.runtime_dir),
        }


@contextmanager
def started(folder: Path) -> Iterator[Product]:
    """Run a gateway in front of two modelled engines until the context ends.

    The engines publish their load and answer in time like the bundled pair, and compute nothing: a start of the real
    ones takes longer than all blocks together, and has end-to-end tests of its own.
    """
    runtime_dir = folder / "run"
    runtime_dir.mkdir(mode=0o700)
    listen = {"PENSTOCK_PUBLIC_LISTEN": "127.0.0.1:0", "PENSTOCK_ADMIN_LISTEN": "127.0.0.1:0"}
    policy = {"PENSTOCK_POLICY_DOCUMENT": str(POLICY), "PENSTOCK_POLICY_SOURCE": "store"}
    settings = {
        "PENSTOCK_PROCESS_RUNTIME_DIR": str(runtime_dir),
        "PENSTOCK_TELEMETRY_RECORDER_MODE": "features",
        **listen,
        **policy,
    }
    with ExitStack() as running:
        for name in ("small", "large"):
            _serve(running, ENGINE_MODULE, "--listen", str(runtime_dir / f"{name}.sock"), log=folder / f"{name}.log")
        log = folder / "gateway.log"
        gateway = _serve(running, "gateway", "gateway", log=log, settings=settings)
        public, admin = _addresses(gateway, log)
        yield Product(public, admin, runtime_dir)


def _serve(
    running: ExitStack, module: str, *arguments: str, log: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a server that ends with the context."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=log.parent,
        stdout=running.enter_context(log.open("wb")),
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), **settings},
    )
    running.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Both listeners, once requests are served."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the gateway ended with {process.returncode}:\n{log.read_text()[-4000:]}"
        for line in log.read_text(errors="replace").splitlines():
            if '"event":"started"' in line:
                listening = json.loads(line)["listening"]
                if _is_ready(listening["public"][0]):
                    return listening["public"][0], listening["admin"][0]
        time.sleep(0.05)
    raise AssertionError(f"not ready within {START_TIMEOUT_S} s:\n{log.read_text()[-4000:]}")


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/readyz", timeout=2.0).status_code == 200
    except httpx.TransportError:
        return False  # still binding
