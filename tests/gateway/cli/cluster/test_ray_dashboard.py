"""`penstock ray deploy` against a scripted dashboard."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest

from gateway.cli.cluster.ray_dashboard import PATH, RayDashboard, RayDeployError
from gateway.cli.cluster.serve_document import IMPORT_PATH, application
from gateway.cli.main import main


class Scripted:
    """Answers with these statuses of the application in turn, and keeps what is sent."""

    def __init__(self, *statuses: str | int, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.statuses = list(statuses)
        self.sent: list[dict[str, Any]] = []
        self.pauses: list[float] = []
        self.dashboard = RayDashboard(
            "http://head:8265", transport=httpx.MockTransport(self.answer), clock=clock, sleep=self.pauses.append
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == PATH
        if request.method == "PUT":
            self.sent.append(json.loads(request.content))
            return httpx.Response(200)
        status = self.statuses.pop(0)
        if isinstance(status, int):
            return httpx.Response(status, text="trouble")
        applications = {"engine": {"status": status, "message": "no such model"}} if status else {}
        return httpx.Response(200, json={"proxies": {}, "applications": applications})


def test_the_application_is_sent_and_runs_after_a_while() -> None:
    scripted = Scripted("", "", "DEPLOYING", "RUNNING")
    scripted.dashboard.submit(application("engine", {"model": "m"}), port=8000)
    scripted.dashboard.wait_until_running("engine", 60.0)
    assert [one["name"] for one in scripted.sent[0]["applications"]] == ["engine"]
    assert len(scripted.pauses) == 2


def test_a_failed_application_and_a_slow_one_are_errors() -> None:
    with pytest.raises(RayDeployError, match="DEPLOY_FAILED: no such model"):
        Scripted("DEPLOY_FAILED").dashboard.wait_until_running("engine", 60.0)
    now = iter([0.0, 1.0, 61.0])
    with pytest.raises(RayDeployError, match="does not run after 60 s"):
        Scripted("DEPLOYING", "DEPLOYING", clock=lambda: next(now)).dashboard.wait_until_running("engine", 60.0)


def test_a_dashboard_that_refuses_is_named() -> None:
    with pytest.raises(RayDeployError, match="head:8265: status 500: trouble"):
        Scripted(500).dashboard.submit(application("engine", {}), port=8000)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--dashboard", "head:8265"], "--dashboard"),
        (["--min-replicas", "5", "--max-replicas", "2"], "--min-replicas"),
        (["--working-dir", "."], "--working-dir"),
        (["--working-dir", "/srv/checkout.zip"], "--working-dir"),
    ],
)
def test_wrong_flags_are_named(flags: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "deploy", "--model", "m", *flags]) == 2
    assert named in capsys.readouterr().err


class _Dashboard(BaseHTTPRequestHandler):
    """A dashboard over HTTP that keeps what it is sent."""

    sent: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_GET(self) -> None:
        self._answer(b'{"applications": {"engine": {"status": "RUNNING"}}}')

    def do_PUT(self) -> None:
        self.sent.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
        self._answer(b"{}")

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_command_sends_the_working_directory_and_the_settings() -> None:
    _Dashboard.sent.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        uri = "https://files.example/checkout.zip"
        flags = ["--dashboard", f"http://127.0.0.1:{server.server_address[1]}", "--working-dir", uri]
        assert main(["ray", "deploy", "--model", "/models/m", "--tensor-parallel", "2", "--port", "8100", *flags]) == 0
        server.shutdown()
        thread.join()
    ((path, sent),) = _Dashboard.sent
    (own,) = sent["applications"]
    assert (path, sent["http_options"]["port"]) == (PATH, 8100)
    assert own["runtime_env"] == {"working_dir": uri}
    assert (own["import_path"], own["args"]["model"], own["args"]["tensor_parallel"]) == (IMPORT_PATH, "/models/m", 2)


def test_a_cluster_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "deploy", "--model", "m", "--dashboard", "http://127.0.0.1:1"]) == 1
    assert "check --dashboard" in capsys.readouterr().err
