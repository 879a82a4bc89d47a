"""A flood of connections against a gateway process that may open few files."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import START_TIMEOUT_S
from tests.e2e.raw import request, send_raw

pytestmark = pytest.mark.e2e

OPEN_FILES = 256

_POLICY = """
schema_version: 1
deployments: [{{id: absent, url: "unix:{folder}/absent.sock", model: absent}}]
routes: [{{id: auto, match: {{models: [auto]}}, select: {{policy: first_available, candidates: [absent]}}}}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """A running gateway."""

    public: str
    admin: str
    pid: int


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    """Public and admin URL of a gateway that may open 256 files; its only upstream does not exist."""
    folder = tmp_path_factory.mktemp("flood")
    (folder / "policy.yaml").write_text(_POLICY.format(folder=folder))
    command = [
        sys.executable,
        "-m",
        "gateway",
        "gateway",
        "--policy",
        "policy.yaml",
        "--port",
        "0",
        "--admin-port",
        "0",
    ]
    log = folder / "gateway.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, env=dict(os.environ))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        try:
            public, admin = _addresses(process, log)
            yield Flooded(public=public, admin=admin, pid=process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=40) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and (event := json.loads(line)).get("event") == "started":
                return f"http://{event['listening']['public'][0]}", f"http://{event['listening']['admin'][0]}"
        time.sleep(0.05)
    raise AssertionError(f"the gateway did not start:\n{log.read_text()[-4000:]}")


def test_a_flood_over_the_open_file_limit_leaves_the_admin_listener_answering(gateway: Flooded) -> None:
    where = urlsplit(gateway.public)
    assert where.hostname is not None
    assert where.port is not None
    num_refused = 0
    with ExitStack() as held:
        for number in range(2 * OPEN_FILES):
            connection = held.enter_context(socket.create_connection((where.hostname, where.port), 5.0))
            connection.settimeout(5.0)
            if number < OPEN_FILES:
                with suppress(OSError):  # refused already
                    connection.sendall(b"GET /livez HTTP/1.1\r\n")  # half a request is not idle: nobody gives it up
            if number >= OPEN_FILES and connection.recv(12) == b"HTTP/1.1 503":
                num_refused += 1
        assert num_refused == OPEN_FILES
        for path in ("/livez", "/metrics"):
            assert (
                send_raw(gateway.admin, request(method="GET", path=path, headers={"host": "localhost"})).status == 200
            )
        in_use = len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))
        assert in_use < OPEN_FILES * 3 // 4
    deadline = time.monotonic() + 5.0
    while (status := send_raw(gateway.public, request(method="GET", path="/livez")).status) != 200:
        assert status == 503
        assert time.monotonic() < deadline
