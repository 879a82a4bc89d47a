"""`penstock up` with stand-ins for its programs: readiness, crashes and the order of stopping."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.supervision import supervised
from gateway.cli.supervisor import probe
from gateway.cli.supervisor.child import BackOff, Child
from gateway.cli.supervisor.console import Console
from gateway.cli.supervisor.first_request import FirstRun
from gateway.cli.supervisor.held_address import HeldAddress
from gateway.cli.supervisor.launch import EngineLaunch, LaunchPlan
from gateway.cli.supervisor.probe import ProbeResult
from gateway.cli.supervisor.supervisor import SECOND_SIGNAL_S, Probe, supervise
from tests.gateway.children import notes, script, server
from tests.gateway.cli.supervisor.test_child import until


def plan(folder: Path, *, gateway_delay_s: float = 0.0, large_delay_s: float = 0.0) -> LaunchPlan:
    """Two engines and a gateway."""
    engines = []
    for name, delay_s in (("small", 0.0), ("large", large_delay_s)):
        child, socket_path = server(folder, name, delay_s=delay_s)
        engines.append(EngineLaunch(child=child, socket_path=socket_path, deployments=(name,)))
    gateway, gateway_socket = server(folder, "gateway", delay_s=gateway_delay_s)
    public = HeldAddress(shown=f"unix:{gateway_socket}", sockets=())
    admin = HeldAddress(shown="127.0.0.1:8081", sockets=())
    return LaunchPlan(engines=tuple(engines), gateway=gateway, public=public, admin=admin)


class Running:
    """A supervisor under way, and what it wrote."""

    def __init__(self, a_plan: LaunchPlan, a_probe: Probe) -> None:
        self.out = io.StringIO()
        self.now_s = 0.0
        self.supervisor = supervised(
            a_plan,
            Console(self.out),
            probe=a_probe,
            first_run=FirstRun(needs_key=False),
            clock=lambda: self.now_s,
            poll_s=0.01,
        )
        self.task = asyncio.create_task(self.supervisor.run())

    @property
    def text(self) -> str:
        return self.out.getvalue()

    def reported(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.text

    async def stop(self) -> int:
        self.supervisor.stop()
        async with asyncio.timeout(10):
            return await self.task


@asynccontextmanager
async def running(a_plan: LaunchPlan, a_probe: Probe = probe.get) -> AsyncIterator[Running]:
    made = Running(a_plan, a_probe)
    try:
        yield made
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)


async def test_the_first_request_is_shown_once_and_only_when_the_gateway_is_ready(tmp_path: Path) -> None:
    async with running(plan(tmp_path, gateway_delay_s=0.4)) as up:
        await until(up.reported("curl --unix-socket"))
        await asyncio.sleep(0.1)
        assert up.text.count("curl") == 1
        assert up.text.count("penstock | ready after") == 1
        before = up.text.partition("penstock | ready after")[0]
        assert "large    | ready after 0.0 s (weights 0.2 s)" in before
        assert "small    | ready after" in before
        assert "gateway  | gateway listens" in before


async def test_a_login_link_is_printed_after_the_address_of_the_admin_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def line(admin: HeldAddress, token_file: Path) -> str:
        return f"sign in: http://{admin.shown}/admin/login#link=s3cret by {token_file.name}"

    monkeypatch.setattr("gateway.cli.supervisor.supervisor.login_line", line)
    async with running(replace(plan(tmp_path), admin_token=tmp_path / "admin.token")) as up:
        await until(up.reported("curl --unix-socket"))
        after = up.text.partition("admin page: http://127.0.0.1:8081/admin/")[2]
        assert "penstock | sign in: http://127.0.0.1:8081/admin/login#link=s3cret by admin.token" in after


async def test_the_first_request_waits_for_the_slowest_engine_and_states_which_it_is(tmp_path: Path) -> None:
    async with running(plan(tmp_path, large_delay_s=600)) as up:
        await until(up.reported("small    | ready after"))
        up.now_s += 15
        await until(up.reported("penstock | waiting for large: still starting; requests to unix:"))
        await until(up.reported("large    | still starting after 15 s"))
        assert "curl" not in up.text


async def test_the_first_request_waits_until_the_gateway_has_seen_every_engine(tmp_path: Path) -> None:
    deployments = {"small": True, "large": False, "hosted": False}

    async def notified(address: str, path: str) -> ProbeResult | None:
        return ProbeResult(status=200, body={"status": "ready", "deployments": deployments})

    async with running(plan(tmp_path), notified) as up:
        await until(up.reported("small    | ready after"))
        await until(up.reported("large    | ready after"))
        up.now_s += 15
        await until(up.reported("it does not reach large yet"))
        assert "curl" not in up.text
        deployments["large"] = True
        await until(up.reported("curl"))


async def test_the_gateway_stops_before_the_engines_it_drains_into(tmp_path: Path) -> None:
    async with running(plan(tmp_path)) as up:
        await until(up.reported("curl"))
        assert await up.stop() == 0
    stopped = [line for line in notes(tmp_path) if line.endswith("stopped")]
    assert stopped[0] == "gateway stopped"
    assert sorted(stopped[1:]) == ["large stopped", "small stopped"]
    assert up.text.endswith("penstock | stopped\n")


async def test_a_crashed_engine_is_started_again_and_reported_to_be_ready_again(tmp_path: Path) -> None:
    a_plan = plan(tmp_path)
    large = a_plan.engines[1]
    async with running(a_plan) as up:
        await until(up.reported("large    | ready after"))
        answer = await probe.get(f"unix:{large.socket_path}", "/startupz")
        assert answer is not None
        large.socket_path.unlink()
        os.kill(answer.body["pid"], signal.SIGKILL)
        await until(up.reported("large    | was killed by SIGKILL; starting again in 0.5 s"))
        await until(up.reported("large    | ready again"))


async def test_a_gateway_whose_settings_are_wrong_stops_everything_with_its_code(tmp_path: Path) -> None:
    a_plan = replace(plan(tmp_path), gateway=script(tmp_path, "gateway", "print('bad policy'); sys.exit(2)"))
    async with running(a_plan) as up:
        async with asyncio.timeout(10):
            assert await up.task == 2
        assert "gateway  | bad policy" in up.text
        assert "penstock | gateway ended with code 2; its last lines give the reason" in up.text


FAILS_AFTER_ITS_FIRST_LIFE = """\
if os.path.exists({marker!r}):
    note({name!r} + " refused")
    sys.exit(2)
open({marker!r}, "w").close()
"""


@pytest.mark.parametrize("broken", ["gateway", "large"])
async def test_a_child_whose_settings_turn_bad_takes_nothing_else_along(tmp_path: Path, broken: str) -> None:
    a_plan = plan(tmp_path)
    program = tmp_path / f"{broken}.py"
    head = FAILS_AFTER_ITS_FIRST_LIFE.format(marker=str(tmp_path / "marker"), name=broken)
    program.write_text(program.read_text().replace("class Answer", head + "class Answer"))
    async with running(a_plan) as up:
        await until(up.reported("curl"))
        path = {"gateway": a_plan.public.shown, "large": f"unix:{a_plan.engines[1].socket_path}"}[broken]
        answer = await probe.get(path, "/readyz")
        assert answer is not None
        os.kill(answer.body["pid"], signal.SIGKILL)
        await until(lambda: f"{broken} refused" in notes(tmp_path))
        await until(up.reported("ended with code 2, its settings are wrong now; starting again in 1 s"))
        assert not up.task.done()
        assert not [line for line in notes(tmp_path) if line.endswith("stopped")]
        (tmp_path / "marker").unlink()
        (tmp_path / f"{broken}.sock").unlink()
        await until(lambda: notes(tmp_path).count(f"{broken} started") == 2)
        assert await up.stop() == 0


async def test_waiting_is_explained_now_and_then(tmp_path: Path) -> None:
    waiting = plan(tmp_path, gateway_delay_s=600)
    async with running(waiting) as up:
        await until(up.reported("large    | ready"))
        assert "waiting" not in up.text
        up.now_s += 15
        await until(up.reported("penstock | waiting for the gateway on unix:"))
        await until(up.reported("no deployment is ready yet"))
        await asyncio.sleep(0.05)
        assert up.text.count("waiting for the gateway") == 1


async def test_engines_that_start_are_named_together_while_another_deployment_answers(tmp_path: Path) -> None:
    a_plan = plan(tmp_path)

    async def notified(address: str, path: str) -> ProbeResult | None:
        return ProbeResult(status=200 if address == a_plan.public.shown else 503, body={})

    async with running(a_plan, notified) as up:
        await until(up.reported("small"))
        await asyncio.sleep(0.05)
        up.now_s += 15
        await until(up.reported("small, large: still starting; requests to "))
        await until(up.reported("are answered without them"))


async def test_an_engine_that_does_not_start_reports_how_far_it_came(tmp_path: Path) -> None:
    requested: list[str] = []

    async def failing(address: str, path: str) -> ProbeResult | None:
        requested.append(address)
        return ProbeResult(status=503, body={"phases": [{"name": "import", "seconds": 2}], "failure": "out of memory"})

    a_plan = plan(tmp_path)
    async with running(a_plan, failing) as up:
        await until(lambda: f"unix:{a_plan.engines[0].socket_path}" in requested)
        up.now_s += 15
        await until(up.reported("small    | still starting after 15 s (import 2.0 s): out of memory"))


async def test_a_second_signal_later_cuts_off_what_is_under_way(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); note('up'); time.sleep(600)"
    a_plan = replace(plan(tmp_path), gateway=script(tmp_path, "gateway", body, stop_timeout_s=600))
    async with running(a_plan) as up:
        await until(lambda: "up" in notes(tmp_path))
        up.supervisor.stop()
        up.supervisor.stop()  # a wrapper's second signal at the same moment is not impatience
        await until(up.reported("stopping: the gateway finishes what is under way"))
        assert "second signal" not in up.text
        up.now_s += SECOND_SIGNAL_S
        up.supervisor.stop()
        async with asyncio.timeout(10):
            assert await up.task == 0
        assert "second signal: stopping at once" in up.text


class SignalledSupervisor:
    """A supervisor that notes its signals, and runs until then."""

    def __init__(self) -> None:
        self.signals: list[str] = []
        self._is_signalled = asyncio.Event()

    def stop(self) -> None:
        self._note("stop")

    def reload(self) -> None:
        self._note("reload")

    async def run(self) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        await self._is_signalled.wait()
        return 0

    def _note(self, what: str) -> None:
        self.signals.append(what)
        self._is_signalled.set()


@pytest.mark.parametrize(("terminal", "signals"), [(True, "stop"), (False, "reload")])
async def test_a_hangup_stops_what_has_a_terminal_and_reloads_what_has_none(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, signals: str
) -> None:
    monkeypatch.setattr("gateway.cli.supervisor.supervisor.has_terminal", lambda: terminal)
    one = SignalledSupervisor()
    async with asyncio.timeout(10):
        assert await supervise(one) == 0  # type: ignore[arg-type]
    assert one.signals == [signals]


async def test_a_hangup_is_nothing_to_what_nohup_started() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        one = SignalledSupervisor()
        running_on = asyncio.create_task(supervise(one))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert (one.signals, running_on.done()) == ([], False)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await running_on == 0
        assert one.signals == ["stop"]
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_child_gets_a_hangup_and_survives_one_before_it_can_use_it(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGHUP, lambda *args: note('again')); note('ready')\nwhile True: time.sleep(0.01)\n"
    child = Child(script(tmp_path, "c", "note('early'); time.sleep(0.5)\n" + body), report=print, backoff=BackOff())
    child.reload()
    task = asyncio.create_task(child.run())
    await until(lambda: "early" in notes(tmp_path))
    child.reload()
    await until(lambda: "ready" in notes(tmp_path))
    child.reload()
    await until(lambda: "again" in notes(tmp_path))
    assert (notes(tmp_path), child.num_starts) == (["early", "ready", "again"], 1)
    await child.stop()
    await task
