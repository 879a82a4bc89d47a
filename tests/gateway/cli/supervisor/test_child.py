"""One child process: its lines, its restarts, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.supervisor.child import EXIT_SETTINGS, BackOff, Child, ChildGaveUp, ChildSpec, describe_exit
from tests.gateway.children import notes, script

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups")


class Lines:
    """What children reported."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []

    def __call__(self, name: str, text: str) -> None:
        self.reported.append((name, text))


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for other processes, whose time cannot be injected."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def child(spec: ChildSpec, lines: Lines, first_s: float = 0.01) -> Child:
    return Child(spec, report=lines, backoff=BackOff(first_s=first_s, longest_s=0.02))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_pauses_double_up_to_a_bound_and_start_over_after_a_healthy_life() -> None:
    backoff = BackOff(first_s=0.5, longest_s=30.0, healthy_s=60.0)
    assert [backoff.pause_s(1.0) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.pause_s(60.0) == 0.5
    assert backoff.pause_s(59.9) == 1.0


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, "ended with code 0"), (-9, "was killed by SIGKILL"), (-250, "was killed by signal 250")],
)
def test_an_exit_code_is_put_into_words(code: int, expected: str) -> None:
    assert describe_exit(code) == expected


async def test_lines_of_both_streams_are_reported_whole_and_under_the_childs_name(tmp_path: Path) -> None:
    body = "sys.stdout.write('one\\ntwo'); sys.stdout.flush(); sys.stderr.write('+\\n\\xff tail'); sys.exit(2)"
    lines = Lines()
    with pytest.raises(ChildGaveUp):
        await child(script(tmp_path, "small", body), lines).run()
    assert [name for name, _ in lines.reported] == ["small"] * 3
    assert [text for _, text in lines.reported[:2]] == ["one", "two+"]
    assert lines.reported[2][1].endswith("tail")


async def test_a_line_without_end_is_reported_in_pieces_and_not_stored(tmp_path: Path) -> None:
    lines = Lines()
    with pytest.raises(ChildGaveUp):
        await child(script(tmp_path, "a", "print('x' * 100_000); sys.exit(2)"), lines).run()
    assert sum(len(text) for _, text in lines.reported) == 100_000
    assert max(len(text) for _, text in lines.reported) <= 2 * 16 * 1024


async def test_a_child_that_crashes_is_started_again(tmp_path: Path) -> None:
    lines = Lines()
    crashing = child(script(tmp_path, "a", "note('up'); sys.exit(3)"), lines)
    running = asyncio.create_task(crashing.run())
    await until(lambda: len(notes(tmp_path)) >= 3)
    await crashing.stop()
    await running
    assert ("a", "ended with code 3; starting again in 0.01 s") in lines.reported
    assert crashing.num_starts >= 3


async def test_a_child_whose_settings_are_wrong_is_not_started_again(tmp_path: Path) -> None:
    wrong = child(script(tmp_path, "a", f"note('up'); sys.exit({EXIT_SETTINGS})"), Lines())
    with pytest.raises(ChildGaveUp, match="a ended with code 2; its last lines give the reason"):
        await wrong.run()
    assert notes(tmp_path) == ["up"]


async def test_a_child_that_was_healthy_once_is_started_again_whatever_its_settings(tmp_path: Path) -> None:
    lines = Lines()
    wrong = child(script(tmp_path, "a", f"note('up'); sys.exit({EXIT_SETTINGS})"), lines)
    wrong.was_healthy = True
    running = asyncio.create_task(wrong.run())
    await until(lambda: len(notes(tmp_path)) >= 3)
    await wrong.stop()
    await running
    assert ("a", "ended with code 2, its settings are wrong now; starting again in 0.01 s") in lines.reported


async def test_stop_during_the_pause_before_a_restart_does_not_wait_for_it(tmp_path: Path) -> None:
    lines = Lines()
    crashing = Child(script(tmp_path, "a", "sys.exit(1)"), report=lines, backoff=BackOff(first_s=600, longest_s=600))
    running = asyncio.create_task(crashing.run())
    await until(lambda: any("starting again" in text for _, text in lines.reported))
    async with asyncio.timeout(2):
        await crashing.stop()
        await running


async def test_a_child_that_ignores_sigterm_is_killed_after_its_time(tmp_path: Path) -> None:
    lines = Lines()
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); note('up'); time.sleep(600)"
    stubborn = child(script(tmp_path, "a", body, stop_timeout_s=0.1), lines)
    running = asyncio.create_task(stubborn.run())
    await until(lambda: notes(tmp_path) == ["up"])
    await stubborn.stop()
    await running
    assert ("a", "still running after 0.1 s; killing it") in lines.reported


async def test_whatever_the_child_started_ends_with_it(tmp_path: Path) -> None:
    body = (
        "pid = os.fork()\n"
        "if pid == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\n"
        "note(str(pid)); time.sleep(600)\n"
    )
    parent = child(script(tmp_path, "a", body), Lines())
    running = asyncio.create_task(parent.run())
    await until(lambda: len(notes(tmp_path)) == 1)
    await parent.stop()
    await running
    await until(lambda: not is_alive(int(notes(tmp_path)[0])))


async def test_cancelling_the_run_leaves_no_process(tmp_path: Path) -> None:
    sleeper = child(script(tmp_path, "a", "note(str(os.getpid())); time.sleep(600)"), Lines())
    running = asyncio.create_task(sleeper.run())
    await until(lambda: len(notes(tmp_path)) == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not is_alive(int(notes(tmp_path)[0])))


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
async def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    spec = script(tmp_path, "a", "note(str(os.getpid())); time.sleep(600)")
    parent_code = (
        "import asyncio\n"
        "from gateway.cli.supervisor.child import BackOff, Child, ChildSpec\n"
        f"spec = ChildSpec(name='a', argv={spec.argv!r}, stop_timeout_s=1.0)\n"
        "asyncio.run(Child(spec, report=lambda *_: None, backoff=BackOff()).run())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", parent_code)
    await until(lambda: len(notes(tmp_path)) == 1)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not is_alive(int(notes(tmp_path)[0])))
