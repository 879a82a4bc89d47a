"""systemd units: known to systemd, sandboxed, ready when their probe answers, and drained before they are killed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from engine.__main__ import make_parser
from engine.config import FrontConfig
from gateway.cli import commands
from gateway.cli.main import build_parser
from gateway.config.sources import load_config
from tests.deploy.promql import DEPLOY

FOLDER = DEPLOY / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
SANDBOX = {
    "CapabilityBoundingSet": [""],
    "NoNewPrivileges": ["yes"],
    "ProtectSystem": ["strict"],
    "ProtectHome": ["yes"],
    "PrivateTmp": ["yes"],
    "PrivateDevices": ["yes"],
    "ProtectKernelTunables": ["yes"],
    "RestrictNamespaces": ["yes"],
    "RestrictSUIDSGID": ["yes"],
    "SystemCallFilter": ["@system-service", "~@privileged"],
}
EVERY = pytest.mark.parametrize("unit", UNITS)


def parsed(unit: str) -> dict[str, dict[str, list[str]]]:
    """Values by key by section. Asserts that every line is a section, a key with its value, or a comment."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in (FOLDER / unit).read_text().splitlines():
        if heading := re.fullmatch(r"\[(Unit|Service|Install)\]", line):
            section = heading[1]
            assert section not in found
            found[section] = defaultdict(list)
        elif line and not line.startswith("#"):
            entry = re.fullmatch(r"([A-Z]\w+)=(.*\S)?", line)
            assert entry, line
            found[section][entry[1]].append(entry[2] or "")
    return found


def environment(unit: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in parsed(unit)["Service"]["Environment"])


def test_there_is_one_for_each_process() -> None:
    assert UNITS == ["penstock-engine@.service", "penstock-gateway.service"]


@EVERY
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_knows_every_line_and_finds_little_exposed(unit: str, tmp_path: Path) -> None:
    name = unit.replace("@.", "@small.")
    for source in UNITS:  # the programs are not installed here
        text = (FOLDER / source).read_text().replace("/opt/penstock/bin/penstock", "/bin/true")
        (tmp_path / source.replace("@.", "@small.")).write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", str(tmp_path / name)]
    analyzed = subprocess.run(analyze, capture_output=True, text=True, timeout=60, check=False)
    assert analyzed.returncode == 0, analyzed.stdout[-400:]


@EVERY
def test_the_sandbox_is_closed(unit: str) -> None:
    service = parsed(unit)["Service"]
    assert {key: service[key] for key in SANDBOX} == SANDBOX
    assert service["User"] == ["penstock"]
    assert service["UMask"] == ["0077"]


@EVERY
def test_a_unit_counts_as_started_when_its_probe_answers(unit: str) -> None:
    service = parsed(unit)["Service"]
    (command,) = service["ExecStartPost"]
    program, *arguments = command.split()
    assert program == "/opt/penstock/bin/penstock", "a minimal system has no curl"
    options = build_parser().parse_args(arguments)
    assert options.command is commands.wait_for_url
    assert float(service["TimeoutStartSec"][0]) > options.timeout_s
    assert "/readyz" in command or environment(unit)["STARTUP_URL"].endswith("/livez")
    assert service["Restart"] == ["on-failure"]
    assert parsed(unit)["Unit"]["StartLimitIntervalSec"] == ["0"]


def test_the_gateways_settings_exist_and_its_drain_fits_its_stop(tmp_path: Path) -> None:
    service = parsed("penstock-gateway.service")["Service"]
    example = dict(
        line.lstrip("# ").split("=", 1)
        for line in (FOLDER / "gateway.env").read_text().splitlines()
        if re.match(r"(# )?PENSTOCK_", line)
    )
    config = load_config(None, environment("penstock-gateway.service") | example, cwd=tmp_path)
    needed_s = config.process.drain_notice_s + config.process.drain_timeout_s
    assert int(service["TimeoutStopSec"][0]) >= needed_s + 10
    # systemd deletes a RuntimeDirectory at every stop, and the embedded store stands in this folder.
    assert str(config.process.runtime_dir).startswith(f"/var/lib/{service['StateDirectory'][0]}/")
    assert "RuntimeDirectory" not in service
    assert environment("penstock-gateway.service")["STARTUP_URL"].startswith(f"http://{config.public.listen}/")


def test_the_engines_flags_exist_and_its_drain_fits_its_stop() -> None:
    service = parsed("penstock-engine@.service")["Service"]
    settings = dict(
        line.split("=", 1) for line in (FOLDER / "small.env").read_text().splitlines() if not line.startswith("#")
    )
    command = re.sub(r"\$\{?(\w+)\}?", lambda name: settings[name[1]], service["ExecStart"][0])
    program, kind, *flags = command.split()
    assert (program, kind) == ("/opt/penstock/bin/penstock", "engine")
    parsed_flags = make_parser().parse_args(flags)
    assert parsed_flags.drain_timeout_s == FrontConfig(listen="", model_name="").drain_timeout_s
    assert int(service["TimeoutStopSec"][0]) >= parsed_flags.drain_timeout_s + 10
