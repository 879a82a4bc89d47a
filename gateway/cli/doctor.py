"""`penstock doctor`: what of this machine and installation works, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import msgspec

from gateway.app.certificates import read_certificates
from gateway.app.policy_acceptance import policy_checks
from gateway.app.store_opening import open_examined
from gateway.cli.supervisor.launch import (
    ENGINE_REMEDY,
    SIZES,
    LaunchError,
    available_cores,
    bundled_model_dir,
    missing_engine_packages,
    python_env,
)
from gateway.cli.supervisor.probe import get
from gateway.cli.supervisor.runtime_lock import running_pid
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.policies.policy_file import PolicyFileError, read_policy
from gateway.routing.quality_files import load_predictors
from gateway.store.examine import examine_store

Level = Literal["ok", "warn", "fail"]

MIN_PYTHON = (3, 11)
MIN_CORES = 2
MIN_MEMORY_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
GOOD_OPEN_FILES = 16_384
MIN_WEIGHTS_BYTES = 64 * 1024
"""Size below that of any real checkpoint: a Git LFS pointer, or a download that was cut off."""
MIN_DISK_BYTES = 64 * 1024**2
DEVICE_TIMEOUT_S = 60.0
_DEVICE_PROBE = (
    "import torch; gpu = torch.cuda.is_available(); "
    "print(torch.__version__, torch.cuda.get_device_name(0) if gpu else 'cpu', sep='|')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; `remedy` is set unless the level is ok."""

    name: str
    level: Level
    message: str
    remedy: str | None = None


def run_doctor(read_settings: Callable[[], GatewayConfig], *, as_json: bool) -> int:
    """Print every check. Returns 1 when one failed; whatever `read_settings` raises passes through."""
    checks = list(examine(read_settings()))
    if as_json:
        print(msgspec.json.encode({"ok": _is_good(checks), "checks": checks}).decode())
    else:
        for check in checks:
            remedy = f"\n               -> {check.remedy}" if check.remedy else ""
            print(f"{check.level:<4}  {check.name:<9}{check.message}{remedy}")
    return 0 if _is_good(checks) else 1


def examine(config: GatewayConfig) -> Iterator[Check]:
    """Run every check, cheap ones first."""
    yield check_python(sys.version_info[:3])
    yield check_packages(requires("penstock") if _is_installed("penstock") else None)
    yield check_cores(available_cores())
    yield check_memory(available_memory_bytes())
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE))
    yield check_runtime_dir(config.process.runtime_dir)
    yield from check_certificates(config)
    yield check_policy(config)
    yield from check_store(config)
    for size in () if missing_engine_packages() else SIZES:
        try:
            yield check_weights(size, bundled_model_dir(size))
        except LaunchError as error:
            yield Check(name="weights", level="fail", message=str(error), remedy="reinstall the package")
    yield from check_instance(config)
    yield check_device()


def check_python(found: tuple[int, ...]) -> Check:
    """Check that this Python is new enough."""
    text = ".".join(map(str, found))
    if found[:2] < MIN_PYTHON:
        remedy = f"install Python {'.'.join(map(str, MIN_PYTHON))} or newer and make a new environment with it"
        return Check(name="python", level="fail", message=f"{text} is too old", remedy=remedy)
    return Check(name="python", level="ok", message=text)


def check_packages(requirements: list[str] | None) -> Check:
    """Check that every required package is installed in a version that our package accepts."""
    if requirements is None:
        message = "penstock itself is not installed; its requirements cannot be compared"
        return Check(name="packages", level="warn", message=message, remedy="pip install -e . in the checkout")
    from packaging.requirements import Requirement

    wrong, seen = [], []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not _is_installed(requirement.name):
            wrong.append(f"{requirement.name} is missing")
            continue
        found = version(requirement.name)
        seen.append(f"{requirement.name} {found}")
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} is not {requirement.specifier}")
    if wrong:
        remedy = "pip install --upgrade penstock, or pip install -e . in a checkout"
        return Check(name="packages", level="fail", message="; ".join(wrong), remedy=remedy)
    return Check(name="packages", level="ok", message=", ".join(seen))


def check_cores(num_cores: int) -> Check:
    """Check that there are enough cores for the engines and the gateway."""
    if num_cores < MIN_CORES:
        remedy = f"give this process {MIN_CORES} cores or more; until then expect waits while the engine computes"
        return Check(name="cores", level="warn", message=f"{num_cores} usable", remedy=remedy)
    return Check(name="cores", level="ok", message=f"{num_cores} usable")


def check_memory(num_bytes: int | None) -> Check:
    """Check that both engines fit into memory."""
    if num_bytes is None:
        remedy = f"make sure that {_gib(MIN_MEMORY_BYTES)} are free"
        return Check(name="memory", level="warn", message="unknown on this system", remedy=remedy)
    if num_bytes < MIN_MEMORY_BYTES:
        remedy = f"free memory or raise the container's limit: two engines need {_gib(MIN_MEMORY_BYTES)}"
        return Check(name="memory", level="warn", message=f"{_gib(num_bytes)} available", remedy=remedy)
    return Check(name="memory", level="ok", message=f"{_gib(num_bytes)} available")


def check_open_files(limits: tuple[int, int]) -> Check:
    """Check that enough connections can be open at once."""
    soft, hard = limits
    shown = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft == resource.RLIM_INFINITY or soft >= GOOD_OPEN_FILES:
        return Check(name="files", level="ok", message=f"{shown} may be open")
    room = hard == resource.RLIM_INFINITY or hard >= GOOD_OPEN_FILES
    remedy = f"ulimit -n {GOOD_OPEN_FILES}" if room else "raise the hard limit (LimitNOFILE=, or the container's)"
    level: Level = "fail" if soft < MIN_OPEN_FILES else "warn"
    return Check(name="files", level=level, message=f"{shown} may be open; each connection takes two", remedy=remedy)


def check_runtime_dir(directory: Path) -> Check:
    """Check that sockets can be created in the runtime directory."""
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        remedy = "make it writable or choose another with --runtime-dir"
        return Check(name="runtime", level="fail", message=f"{place} cannot be written", remedy=remedy)
    free = shutil.disk_usage(place).free
    if free < MIN_DISK_BYTES:
        message = f"{place} has {free // 1024**2} MiB left"
        return Check(name="runtime", level="warn", message=message, remedy="free some space")
    return Check(name="runtime", level="ok", message=str(directory))


def check_certificates(config: GatewayConfig) -> Iterator[Check]:
    """Check that the listeners with TLS would start with their certificates; nothing without any."""
    try:
        found = read_certificates(config)
    except ConfigError as error:
        remedy = "give PEM files: the certificate with its issuers, and its key without a passphrase"
        yield Check(name="tls", level="fail", message=str(error), remedy=remedy)
        return
    if found:
        yield Check(name="tls", level="ok", message=f"certificates of {', '.join(found)} fit their keys")


def check_policy(config: GatewayConfig) -> Check:
    """Check that the gateway would start with its policy."""
    try:
        predictors = load_predictors(config.policy.quality_dir)
        found = read_policy(config.policy.document, policy_checks(config, os.environ, predictors))
    except (PolicyFileError, ConfigError) as error:
        first, *others = str(error).splitlines()
        more = f" (and {len(others)} more)" if others else ""
        remedy = f"penstock policy check {shlex.quote(str(config.policy.document))}"
        return Check(name="policy", level="fail", message=first + more, remedy=remedy)
    return Check(name="policy", level="ok", message=f"{config.policy.document}, revision {found.revision}")


def check_store(config: GatewayConfig) -> Iterator[Check]:
    """Check that replicas could share their state through the store."""
    for found in asyncio.run(examine_store(config.store_address, open_examined, timeout_s=config.store.timeout_s)):
        yield Check(name="store", level=found.level, message=found.message, remedy=found.remedy)


def check_weights(size: str, folder: Path) -> Check:
    """Check that a bundled model's files are present and complete."""
    weights = folder / "model.safetensors"
    num_bytes = weights.stat().st_size if weights.is_file() else 0
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if num_bytes < MIN_WEIGHTS_BYTES or missing:
        problem = f"{', '.join(missing)} missing" if missing else f"{weights} has {num_bytes} bytes"
        remedy = "reinstall the package; in a checkout, git status shows what is missing"
        return Check(name="weights", level="fail", message=f"{size}: {problem}", remedy=remedy)
    return Check(name="weights", level="ok", message=f"{size}: {num_bytes / 1e6:.1f} MB")


def check_instance(config: GatewayConfig) -> Iterator[Check]:
    """Check that a running instance is ready, or that the ports are free for a new one."""
    pid = running_pid(config.process.runtime_dir)
    answer = asyncio.run(get(config.public.listen, "/readyz", tls_cert=config.public.tls_cert))
    if pid is not None or answer is not None:
        who = f"pid {pid} on {config.public.listen}" if pid is not None else config.public.listen
        if answer is not None and answer.status == 200:
            yield Check(name="running", level="ok", message=f"{who} is ready")
        elif answer is not None and answer.status == 503:
            remedy = f"it may still be starting; GET {config.public.listen}see /startupz and its log"
            yield Check(name="running", level="warn", message=f"{who} is not ready", remedy=remedy)
        else:
            remedy = "it may listen elsewhere (give doctor the same --config and --port), or it hangs"
            yield Check(name="running", level="warn", message=f"{who} does not answer /readyz", remedy=remedy)
        return
    yield check_port(config.public.listen, "--port")
    yield check_port(config.admin.listen, "--admin-port")


def check_port(address: str, flag: str) -> Check:
    """Check that the port can be bound."""
    if address.startswith(("unix:", "fd:")):
        return Check(name="port", level="ok", message=address)
    host, _, port = address.rpartition(":")
    try:
        where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(where[0], where[1]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where[4])
    except OSError as error:
        problem = (
            "is in use" if error.errno == errno.EADDRINUSE else f"cannot be listened on: {error.strerror or error}"
        )
        return Check(name="port", level="fail", message=f"{address} {problem}", remedy=f"choose another with {flag} N")
    return Check(name="port", level="ok", message=f"{address} is free")


def check_device(probe: str = _DEVICE_PROBE) -> Check:
    """Report the device that torch computes on; another process imports torch, this one never does."""
    if missing := missing_engine_packages():
        message = f"this is a gateway alone: {', '.join(missing)} not installed"
        return Check(name="device", level="warn", message=message, remedy=f"for an engine: {ENGINE_REMEDY}")
    env = {**os.environ, **python_env()}
    try:
        found = subprocess.run(
            [sys.executable, "-P", "-c", probe], capture_output=True, text=True, timeout=DEVICE_TIMEOUT_S, env=env
        )
    except subprocess.TimeoutExpired:
        message = f"torch was not imported within {DEVICE_TIMEOUT_S:g} s"
        return Check(name="device", level="warn", message=message, remedy="check the machine's load and disk")
    torch_version, separator, name = found.stdout.strip().partition("|")
    if found.returncode != 0 or not separator:
        problem = found.stderr.strip().splitlines()[-1:] or [f"exit code {found.returncode}"]
        remedy = ENGINE_REMEDY
        return Check(name="device", level="fail", message=f"torch does not work: {problem[0]}", remedy=remedy)
    return Check(name="device", level="ok", message=f"torch {torch_version} on {name}")


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that is still available: the machine's, or the rest of the container's limit.

    None where the system reports neither.
    """
    try:
        lines = meminfo.read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        allowed, used = (limit / "memory.max").read_text().strip(), (limit / "memory.current").read_text()
        return free if allowed == "max" else min(free, max(0, int(allowed) - int(used)))
    except (OSError, ValueError):
        return free


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _is_good(checks: list[Check]) -> bool:
    return all(check.level != "fail" for check in checks)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 1024**3:.1f} GiB"
