"""`penstock ray deploy` against a scripted dashboard."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gateway.cli.cluster.ray_commands import PATH, submit, wait_until_running
from gateway.cli.cluster.serve_document import application
from gateway.cli.commands import CommandError
from gateway.cli.main import main


class Dashboard:
    """Answers with these statuses of the application in turn, and keeps what is sent."""

    def __init__(self, *statuses: str | int) -> None:
        self.statuses = list(statuses)
        self.sent: list[dict[str, Any]] = []
        self.client = httpx.Client(transport=httpx.MockTransport(self.answer), base_url="http://head:8265")

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
    dashboard, slept = Dashboard("", "", "DEPLOYING", "RUNNING"), list[float]()
    submit(dashboard.client, application("engine", {"model": "m"}), port=8000)
    wait_until_running(dashboard.client, "engine", 60.0, clock=lambda: 0.0, sleep=slept.append)
    assert [one["name"] for one in dashboard.sent[0]["applications"]] == ["engine"]
    assert len(slept) == 2


def test_a_failed_application_and_a_slow_one_are_errors() -> None:
    with pytest.raises(CommandError, match="DEPLOY_FAILED: no such model"):
        wait_until_running(Dashboard("DEPLOY_FAILED").client, "engine", 60.0)
    now = iter([0.0, 1.0, 61.0])
    with pytest.raises(CommandError, match="does not run after 60 s"):
        wait_until_running(
            Dashboard("DEPLOYING", "DEPLOYING").client, "engine", 60.0, clock=lambda: next(now), sleep=lambda _: None
        )


def test_a_dashboard_that_refuses_is_named() -> None:
    with pytest.raises(CommandError, match="head:8265: status 500: trouble"):
        submit(Dashboard(500).client, application("engine", {}), port=8000)


def test_an_address_that_is_none_is_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "deploy", "--model", "m", "--dashboard", "head:8265"]) == 2
    assert "--dashboard" in capsys.readouterr().err
