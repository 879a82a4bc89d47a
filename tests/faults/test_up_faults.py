"""`penstock up` whose gateway is killed, also while its files are bad."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import ROOT, gateway_process
from tests.faults.up import POLICY, UpProcess, up_process
from tests.gateway.scripted import ScriptedUpstream, Wire, complete
from tests.gateway.stack import Reply, chat, encode

NUM_CLIENTS = 4
SEMANTIC = (
    POLICY
    + """\
routes:
  - id: main
    match: {{models: [tiny]}}
    select: {{policy: first_available, candidates: [only]}}
    cache: {{mode: exact}}
"""
)


def unknown_key(policy: Path) -> None:
    policy.write_text(policy.read_text() + "rutes: []\n")


def remove(policy: Path) -> None:
    policy.unlink()


def name_a_missing_variable(policy: Path) -> None:
    policy.write_text(policy.read_text().replace("model: tiny", "model: tiny, api_key_env: NO_SUCH_VARIABLE"))


async def call(port: int) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(chat("tiny")))
        return Reply(await asyncio.wait_for(reader.read(), 60))
    finally:
        writer.close()


async def until_back(up: UpProcess, num_starts: int) -> None:
    await up.until(lambda: len(up.lines("started")) == num_starts)


@pytest.mark.parametrize("spoil", [unknown_key, remove, name_a_missing_variable])
async def test_a_gateway_killed_while_its_policy_is_bad_comes_back_with_the_last_good_one(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """Fault row 45: requests go on, and what is wrong is in the log, on the admin pages and in the metrics."""
    folder = tmp_path / "here"
    folder.mkdir()
    policy = folder / "policy.yaml"
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        policy.write_text(POLICY.format(engine=engine.path))
        good = policy.read_text()
        async with up_process(folder, "--policy", str(policy)) as up:
            await up.ready()
            spoil(policy)
            await up.until(lambda: bool(up.lines("policy_refused")))
            await up.kill_gateway()
            reply = await call(up.port)  # waits in the queue until the gateway is back

            assert reply.status == 200
            await until_back(up, 2)
            refused = up.lines("policy_refused")
            assert {line["level"] for line in refused} == {"error"}
            assert [line for line in refused if "started on the last good policy, revision" in line["error"]]
            metrics = (await up.get("/metrics", admin=True)).text
            assert "penstock_policy_reload_success 0.0" in metrics
            facts = (await up.get("/admin/api/overview", admin=True)).json()["policy"]
            assert facts["is_current"] is False
            assert facts["error"].splitlines()[0] == refused[0]["error"].splitlines()[0]

            policy.write_text(good)
            await up.until(lambda: bool(up.lines("policy_in_force")[1:]))
            assert "penstock_policy_reload_success 1.0" in (await up.get("/metrics", admin=True)).text
            assert await up.stop() == 0


async def test_a_policy_that_was_never_good_is_refused_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "policy.yaml").write_text("rutes: []\n")
    async with up_process(folder, "--policy", "policy.yaml") as up:
        assert await asyncio.wait_for(up.process.wait(), 60) == 2
    assert "rutes: unknown key" in up.text


@pytest.mark.parametrize("settings_now", ["polici = 1\n", "not toml", 'policy.document = "none.yaml"\n', None])
async def test_a_restart_has_the_settings_that_up_was_started_with(tmp_path: Path, settings_now: str | None) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    settings = folder / "penstock.toml"
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(POLICY.format(engine=engine.path))
        settings.write_text('policy.document = "policy.yaml"\n')
        async with up_process(folder) as up:
            await up.ready()
            settings.unlink() if settings_now is None else settings.write_text(settings_now)
            await up.kill_gateway()
            assert (await call(up.port)).status == 200
            assert await up.stop() == 0


async def test_a_hangup_of_up_without_a_terminal_reads_the_policy_again(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    policy = folder / "policy.yaml"
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        policy.write_text(POLICY.format(engine=engine.path))
        seldom = {"PENSTOCK_POLICY_POLL_S": "60"}
        async with up_process(folder, "--policy", "policy.yaml", env=seldom, is_daemon=True) as up:
            await up.ready()
            policy.write_text(policy.read_text() + "# changed\n")
            up.process.send_signal(signal.SIGHUP)
            await up.until(lambda: len(up.lines("policy_in_force")) == 2)
            assert (await call(up.port)).status == 200
            assert await up.stop() == 0
    assert "starting again" not in up.text


@pytest.mark.parametrize("content", [b"", b"\xff\x00 not what it was"])
async def test_a_gateway_killed_while_every_file_it_keeps_is_damaged_comes_back(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    run = folder / "run"
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(SEMANTIC.format(engine=engine.path))
        async with up_process(
            folder, "--policy", "policy.yaml", env={"PENSTOCK_TELEMETRY_RECORDER_MODE": "text"}
        ) as up:
            await up.ready()
            assert (await call(up.port)).status == 200
            await up.kill_gateway()
            for path in run.rglob("*"):
                if path.is_file() and path.name != "penstock.pid":
                    path.write_bytes(content)
            assert (await call(up.port)).status == 200
            await until_back(up, 2)
            assert len((run / "recorded" / "salt").read_bytes()) == 16
            assert await up.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_gateway_that_ends_refuses_nobody_while_it_starts_again(tmp_path: Path, number: signal.Signals) -> None:
    """Connections are taken all the time, and every request of those made after the kill is answered."""
    folder = tmp_path / "here"
    folder.mkdir()
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(POLICY.format(engine=engine.path))
        async with up_process(folder, "--policy", "policy.yaml") as up:
            await up.ready()
            port, admin_port = up.port, up.admin_port
            requested: list[asyncio.Task[Reply]] = []
            is_back = asyncio.Event()

            async def client() -> None:
                while not is_back.is_set():
                    requested.append(asyncio.create_task(call(port)))
                    await asyncio.sleep(0.05)

            await up.kill_gateway(number)
            clients = [asyncio.create_task(client()) for _ in range(NUM_CLIENTS)]
            admin = asyncio.create_task(up.get("/livez", admin=True))
            await until_back(up, 2)
            is_back.set()
            await asyncio.gather(*clients)
            replies = await asyncio.gather(*requested)
            assert len(replies) > NUM_CLIENTS
            assert {reply.status for reply in replies} == {200}
            assert (await admin).status_code == 200
            assert up.lines("started")[0]["listening"] == up.lines("started")[1]["listening"]

            assert await up.stop() == 0
            for freed in (port, admin_port):
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", freed)


async def test_a_gateway_under_up_refuses_connections_once_it_drains(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(POLICY.format(engine=engine.path))
        async with up_process(folder, "--policy", "policy.yaml") as up:
            await up.ready()
            port = up.port
            is_answering = asyncio.Event()

            async def hold(wire: Wire) -> None:
                await is_answering.wait()
                await complete(wire)

            engine.scripts = [hold]
            under_way = asyncio.create_task(call(port))
            while not engine.received:
                await asyncio.sleep(0.02)
            up.process.terminate()
            await up.until(lambda: bool(up.lines("draining")))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            is_answering.set()
            assert (await under_way).status == 200
            assert await asyncio.wait_for(up.process.wait(), 40) == 0


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("with space, für 日本, 50% #1?&", {}),
        ('it\'s "so" $(x)`y`;a:b', {}),
        ("two\nlines: é", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}),
        ("no text \udcff", {}),
    ],
)
async def test_up_starts_in_a_folder_of_any_name(name: str, env: dict[str, str]) -> None:
    """The folder is in the policy's path, in an upstream's URL, in the runtime directory's and in its store's."""
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short, name)
        os.mkdir(folder)
        await start_and_restart(folder, env)
        assert "store.sqlite3" in os.listdir(folder / "run")


async def start_and_restart(folder: Path, env: dict[str, str]) -> None:
    async with ScriptedUpstream(folder / "engine.sock"):
        (folder / "policy.yaml").write_text(POLICY.format(engine="${runtime_dir}/../engine.sock"))
        async with up_process(folder, "--policy", "policy.yaml", env=env) as up:
            await up.ready()
            assert (await call(up.port)).status == 200
            assert (await up.get("/admin/api/overview", admin=True)).status_code == 200
            assert (await up.get("/admin/api/policy", admin=True)).status_code == 200
            await up.kill_gateway()
            assert (await call(up.port)).status == 200
            await until_back(up, 2)
            assert not [line for line in up.text.splitlines() if "Traceback" in line]
            assert await up.stop() == 0


async def test_a_gateway_alone_starts_on_the_last_good_policy_and_keeps_its_files_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
            for policy in (None, "rutes: []\n"):
                async with gateway_process(tmp_path, "a", engine.path, listen="127.0.0.1:0", policy=policy) as gateway:
                    port = int(gateway.lines("started")[0]["listening"]["public"][0].rpartition(":")[2])
                    assert (await call(port)).status == 200
                    refused = [line["error"] for line in gateway.lines("policy_refused")]
                    stored = {
                        path: mode for path, mode in open_to_others(tmp_path).items() if "engine.sock" not in path
                    }
                    assert stored == {}
            assert "started on the last good policy" in refused[0]
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Everything in a folder, itself included, that has a bit for others or the group."""
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {str(path): oct(mode) for path, mode in found.items() if mode & 0o077}


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_nothing_that_up_keeps_is_for_others(tmp_path: Path, umask: int) -> None:
    """A tree that an earlier version left open is tightened at the next start, too."""
    folder = tmp_path / "here"
    folder.mkdir()
    run = folder / "run"
    listen = {"PENSTOCK_TELEMETRY_RECORDER_MODE": "text"}
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(SEMANTIC.format(engine=engine.path))
        for _ in range(2):
            async with up_process(folder, "--policy", "policy.yaml", umask=umask, env=listen) as up:
                await up.ready()
                assert (await call(up.port)).status == 200
                await up.until(lambda: (run / "recorded" / "salt").exists())
                assert open_to_others(run) == {}
                assert await up.stop() == 0
            assert open_to_others(run) == {}
            names = {path.name for path in run.rglob("*")}
            assert {"store.sqlite3", "store.sqlite3.answers", "admin.token", "penstock.pid", "recorded"} <= names
            for path in (run, *run.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("command", ["up", "gateway"])
async def test_a_runtime_folder_that_is_a_link_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "policy.yaml").write_text(POLICY.format(engine=tmp_path / "engine.sock"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway", command, "--policy", "policy.yaml", "--port", "0"),
        *("--admin-port", "0", "--runtime-dir", "run"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, reported = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"run: is a symbolic link" in reported
    assert b"choose another with --runtime-dir" in reported
    assert list((tmp_path / "elsewhere").iterdir()) == []
