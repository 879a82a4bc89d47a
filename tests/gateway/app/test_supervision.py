"""What `penstock up` runs: each program of the plan, and no other."""

from __future__ import annotations

import io
from pathlib import Path

from gateway.app.supervision import supervised
from gateway.cli.supervisor.console import Console
from gateway.cli.supervisor.first_request import FirstRun
from tests.gateway.cli.supervisor.test_child import until
from tests.gateway.cli.supervisor.test_supervisor import plan, running


async def test_every_program_of_the_plan_is_started_and_stopped(tmp_path: Path) -> None:
    async with running(plan(tmp_path)) as up:
        for name in ("small", "large", "gateway"):
            await until(up.reported(f"{name:<8} | "))
        assert await up.stop() == 0


def test_nothing_runs_before_the_supervisor_does(tmp_path: Path) -> None:
    out = io.StringIO()
    supervised(plan(tmp_path), Console(out), first_run=FirstRun(needs_key=False))
    assert out.getvalue() == ""
    assert list(tmp_path.glob("*.sock")) == []
