"""What `penstock doctor` finds, and what it advises."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.app.connections.store_opening import open_store
from gateway.cli import doctor, machine_checks
from gateway.cli.machine_checks import Check, Level
from gateway.config.checks import ConfigError
from gateway.config.running import RunningFile
from gateway.config.settings import GatewayConfig
from gateway.config.sources import config_of
from gateway.store.address import parse_store

GIB = 1024**3


@pytest.mark.parametrize(
    ("check", "level", "reported"),
    [
        (machine_checks.check_python((3, 11, 7)), "ok", "3.11.7"),
        (machine_checks.check_python((3, 10, 1)), "fail", "3.10.1 is too old"),
        (machine_checks.check_packages(["msgspec>=0.19", "nothing-such; extra == 'gpu'"]), "ok", "msgspec "),
        (machine_checks.check_packages(["nothing-such>=1"]), "fail", "nothing-such is missing"),
        (machine_checks.check_packages(["msgspec<0.1"]), "fail", "is not <0.1"),
        (machine_checks.check_packages(None), "warn", "not installed"),
        (machine_checks.check_cores(2), "ok", "2 usable"),
        (machine_checks.check_cores(1), "warn", "1 usable"),
        (machine_checks.check_memory(8 * GIB), "ok", "8.0 GiB available"),
        (machine_checks.check_memory(GIB), "warn", "1.0 GiB available"),
        (machine_checks.check_memory(None), "warn", "unknown on this system"),
        (machine_checks.check_open_files((65536, 65536)), "ok", "65536 may be open"),
        (machine_checks.check_open_files((resource.RLIM_INFINITY, resource.RLIM_INFINITY)), "ok", "unlimited"),
        (machine_checks.check_open_files((1024, 1_048_576)), "warn", "1024 may be open"),
        (machine_checks.check_open_files((256, 256)), "fail", "256 may be open"),
        (machine_checks.check_device("print('2.13.0|NVIDIA H200')"), "ok", "torch 2.13.0 on NVIDIA H200"),
        (
            machine_checks.check_device("raise ImportError('no torch')"),
            "fail",
            "torch does not work: ImportError: no torch",
        ),
        (machine_checks.check_device("print('hello')"), "fail", "torch does not work"),
    ],
)
def test_a_check_knows_its_level_and_every_trouble_has_a_remedy(check: Check, level: Level, reported: str) -> None:
    assert check.level == level
    assert reported in check.message
    assert (check.remedy is None) == (level == "ok")


def test_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    1000 kB\n")
    assert machine_checks.available_memory_bytes(meminfo, tmp_path) == 1_024_000
    (tmp_path / "memory.max").write_text("600000\n")
    (tmp_path / "memory.current").write_text("100000\n")
    assert machine_checks.available_memory_bytes(meminfo, tmp_path) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_checks.available_memory_bytes(meminfo, tmp_path) == 1_024_000
    assert machine_checks.available_memory_bytes(tmp_path / "none", tmp_path) is None


def test_a_directory_yet_to_be_made_is_fine_where_its_parent_can_be_written(tmp_path: Path) -> None:
    assert doctor.check_runtime_dir(tmp_path / "a" / "b").level == "ok"
    (tmp_path / "file").touch()
    assert doctor.check_runtime_dir(tmp_path / "file" / "b").level == "fail"


def runtime(folder: Path) -> dict[str, Path]:
    """The setting of a runtime directory."""
    return {"process.runtime_dir": folder}


def test_a_bad_policy_is_shown_by_its_first_problem(tmp_path: Path) -> None:
    bad = tmp_path / "p.yaml"
    bad.write_text("schema_version: 1\ndeployments: []\nrutes: 1\n")
    check = doctor.check_policy(config_of({"policy.document": bad}))
    assert check.level == "fail"
    assert "p.yaml:2:14: deployments: needs at least 1 item (and 1 more)" in check.message
    assert check.remedy == f"penstock policy check {bad}"
    good = doctor.check_policy(GatewayConfig())
    assert (good.level, good.message.startswith("configured: ")) == ("ok", True)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "check_device", lambda: GOOD)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = config_of({"public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", **runtime(tmp_path / "run")})
    list(doctor.examine(config))
    assert list(tmp_path.iterdir()) == []


async def test_a_store_in_use_stays_as_it_is(tmp_path: Path) -> None:
    store = open_store(parse_store(f"embedded:{tmp_path / 'store.sqlite3'}"), timeout_s=5.0)
    await store.put("space", "key", b"value")
    await store.aclose()
    config = config_of(runtime(tmp_path))
    before = contents(tmp_path)
    (check,) = await asyncio.to_thread(lambda: list(doctor.check_store(config)))
    assert (check.level, f"{tmp_path / 'store.sqlite3'}, answers in" in check.message) == ("ok", True)
    assert contents(tmp_path) == before
    with RunningFile(tmp_path, public="127.0.0.1:1", admin="127.0.0.1:2"):
        (check,) = doctor.check_store(config)
    assert (check.level, "is in use by what runs here" in check.message) == ("ok", True)


async def test_a_damaged_store_is_a_failure_and_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_bytes(b"no database" * 1000)
    (check,) = await asyncio.to_thread(lambda: list(doctor.check_store(config_of(runtime(tmp_path)))))
    assert check.level == "fail"
    assert list(contents(tmp_path)) == ["store.sqlite3"]


async def test_a_product_on_ports_of_its_own_is_found(tmp_path: Path) -> None:
    async with answering(tmp_path / "p.sock", "200 OK"):
        with RunningFile(tmp_path, public=f"unix:{tmp_path / 'p.sock'}", admin="127.0.0.1:2"):
            (check,) = await asyncio.to_thread(lambda: list(doctor.check_instance(config_of(runtime(tmp_path)))))
    assert (check.level, f"pid {os.getpid()} on unix:" in check.message) == ("ok", True)


def test_a_store_out_of_reach_is_a_failure(tmp_path: Path) -> None:
    (check,) = doctor.check_store(config_of({"process.runtime_dir": tmp_path, "store.address": "redis://127.0.0.1:1"}))
    assert (check.name, check.level) == ("store", "fail")
    (check,) = doctor.check_store(config_of({"process.runtime_dir": tmp_path}))
    assert check.level == "ok"


def test_weights_that_are_only_a_pointer_are_found(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert doctor.check_weights("small", tmp_path).level == "fail"
    (tmp_path / "model.safetensors").write_bytes(bytes(doctor.MIN_WEIGHTS_BYTES))
    assert doctor.check_weights("small", tmp_path).level == "ok"
    (tmp_path / "config.json").unlink()
    assert "config.json missing" in doctor.check_weights("small", tmp_path).message


def test_a_taken_port_is_found(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        taken.listen()
        check = doctor.check_port(address, "--port")
    assert (check.level, check.message) == ("fail", f"{address} is in use")
    assert check.remedy == "choose another with --port N"
    assert doctor.check_port(address, "--port").level == "ok"
    assert doctor.check_port("unix:/x", "--port").level == "ok"


@asynccontextmanager
async def answering(path: Path, status: str) -> AsyncIterator[None]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        yield


@pytest.mark.parametrize(
    ("status", "level", "reported"),
    [
        ("200 OK", "ok", "is ready"),
        ("503 Service Unavailable", "warn", "is not ready"),
        ("404 Not Found", "warn", "does not answer /readyz"),
    ],
)
async def test_a_running_instance_is_called_instead_of_its_ports(
    tmp_path: Path, status: str, level: Level, reported: str
) -> None:
    config = config_of({"public.listen": f"unix:{tmp_path / 'p.sock'}", "process.runtime_dir": tmp_path})
    async with answering(tmp_path / "p.sock", status):
        checks = await asyncio.to_thread(lambda: list(doctor.check_instance(config)))
    assert [check.level for check in checks] == [level]
    assert reported in checks[0].message


def report(monkeypatch: pytest.MonkeyPatch, checks: list[Check], *, as_json: bool = False) -> int:
    monkeypatch.setattr(doctor, "examine", lambda config: iter(checks))
    return doctor.run_doctor(GatewayConfig, as_json=as_json)


GOOD = Check(name="cores", level="ok", message="2 usable")
WARNING = Check(name="files", level="warn", message="256", remedy="ulimit -n 16384")
FAILURE = Check(name="policy", level="fail", message="bad", remedy="mend it")


def test_warnings_do_not_fail_the_examination(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(monkeypatch, [GOOD, WARNING]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    cores    2 usable",
        "warn  files    256",
        "               -> ulimit -n 16384",
    ]


def test_a_failure_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(monkeypatch, [GOOD, FAILURE], as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["checks"][1] == {"name": "policy", "level": "fail", "message": "bad", "remedy": "mend it"}


def test_settings_that_cannot_be_read_are_the_callers_to_report() -> None:
    def broken() -> GatewayConfig:
        raise ConfigError("x: y")

    with pytest.raises(ConfigError):
        doctor.run_doctor(broken, as_json=False)


def test_the_examination_covers_this_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "check_device", lambda: GOOD)  # importing torch takes seconds
    config = config_of({"public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "process.runtime_dir": tmp_path})
    checks = list(doctor.examine(config))
    assert {"python", "packages", "cores", "memory", "files", "runtime", "policy", "store", "weights", "port"} <= {
        check.name for check in checks
    }
    assert [check for check in checks if check.level == "fail"] == []
