"""`penstock doctor`: what of this machine and installation works, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import requires
from pathlib import Path

import msgspec

from gateway.app.connections.certificates import read_certificates
from gateway.app.connections.store_opening import open_examined
from gateway.app.policy_acceptance import policy_checks
from gateway.cli.admin_client import client_of
from gateway.cli.commands import CommandError
from gateway.cli.machine_checks import (
    Check,
    available_memory_bytes,
    check_cores,
    check_device,
    check_memory,
    check_open_files,
    check_packages,
    check_python,
    is_installed,
)
from gateway.cli.supervisor.console import one_line
from gateway.cli.supervisor.launch import (
    SIZES,
    LaunchError,
    available_cores,
    bundled_model_dir,
    missing_engine_packages,
    with_resume_key,
)
from gateway.cli.supervisor.probe import get
from gateway.cli.supervisor.runtime_lock import running_pid
from gateway.cli.supervisor.served_model import PACKAGED_MODEL, PULL_PACKAGED, is_packaged_model_installed
from gateway.config.checks import ConfigError
from gateway.config.running import running_product
from gateway.config.settings import GatewayConfig
from gateway.policies.policy_file import PolicyFileError, read_policy
from gateway.routing.quality_files import load_predictors
from gateway.store.examine import examine_copy, examine_store

MIN_WEIGHTS_BYTES = 64 * 1024
"""Size below that of any real checkpoint: a Git LFS pointer, or a download that was cut off."""
MIN_DISK_BYTES = 64 * 1024**2


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
    yield check_packages(requires("penstock") if is_installed("penstock") else None)
    yield check_cores(available_cores())
    yield check_memory(available_memory_bytes())
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE))
    yield check_runtime_dir(config.process.runtime_dir)
    yield from check_certificates(config)
    yield check_policy(config)
    yield from check_policy_in_force(config)
    yield from check_store(config)
    for size in () if missing_engine_packages() else SIZES:
        try:
            yield check_weights(size, bundled_model_dir(size))
        except LaunchError as error:
            yield Check(name="weights", level="fail", message=str(error), remedy="reinstall the package")
    yield check_packaged_model(is_installed=is_packaged_model_installed())
    yield from check_instance(config)
    yield check_device()


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
        found = read_policy(config.policy.document, policy_checks(config, with_resume_key(os.environ), predictors))
    except (PolicyFileError, ConfigError) as error:
        first, *others = str(error).splitlines()
        more = f" (and {len(others)} more)" if others else ""
        remedy = f"penstock policy check {shlex.quote(str(config.policy.document))}"
        return Check(name="policy", level="fail", message=first + more, remedy=remedy)
    return Check(name="policy", level="ok", message=f"configured: {config.policy.document}, revision {found.revision}")


def check_policy_in_force(config: GatewayConfig) -> Iterator[Check]:
    """Check that what runs here serves the newest policy; nothing where nothing runs."""
    if running_product(config.process.runtime_dir) is None:
        return
    try:
        with client_of(config) as client:
            found = client.get("policy")
    except CommandError as error:
        remedy = "see penstock policy history, with --token-file where it needs a login"
        message = f"what is in force here is not known: {one_line(str(error))}"
        yield Check(name="policy", level="warn", message=message, remedy=remedy)
        return
    status = found["status"]
    if status["is_current"]:
        yield Check(name="policy", level="ok", message=f"in force here now: revision {status['revision']}")
        return
    remedy = f"penstock policy check {shlex.quote(str(config.policy.document))}"
    if found["source"] == "store":
        remedy = "give this gateway what the revision needs, or go back: penstock policy history and rollback"
    message = f"revision {status['revision']} is in force, not the newest: {one_line(status['error'])}"
    yield Check(name="policy", level="fail", message=message, remedy=remedy)


def check_store(config: GatewayConfig) -> Iterator[Check]:
    """Check that replicas could share their state through the store; nothing is written to it."""
    address, timeout_s = config.store_address, config.store.timeout_s
    if address.path is None:
        findings = asyncio.run(examine_store(address, open_examined, timeout_s=timeout_s))
    elif running_product(config.process.runtime_dir) is not None:
        yield Check(name="store", level="ok", message=f"{address.shown} is in use by what runs here")
        return
    else:
        findings = examine_copy(address.path, open_examined, timeout_s=timeout_s)
    for found in findings:
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


def check_packaged_model(*, is_installed: bool) -> Check:
    """Check that `penstock up` has a real model to serve as `auto`."""
    if is_installed:
        return Check(name="weights", level="ok", message=f"{PACKAGED_MODEL} is installed")
    message = f"{PACKAGED_MODEL} is not installed: without --model, penstock up serves the two bundled toys as auto"
    return Check(name="weights", level="warn", message=message, remedy=PULL_PACKAGED)


def check_instance(config: GatewayConfig) -> Iterator[Check]:
    """Check that a running instance is ready, or that the ports are free for a new one."""
    running = running_product(config.process.runtime_dir)
    pid = running_pid(config.process.runtime_dir) if running is None else running.pid
    listen, tls_cert = (config.public.listen, config.public.tls_cert) if running is None else running.public_listener
    answer = asyncio.run(get(listen, "/readyz", tls_cert=tls_cert))
    if pid is not None or answer is not None:
        who = f"pid {pid} on {listen}" if pid is not None else listen
        if answer is not None and answer.status == 200:
            yield Check(name="running", level="ok", message=f"{who} is ready")
        elif answer is not None and answer.status == 503:
            remedy = "it may still be starting, or have no ready deployment: see penstock top and its log"
            yield Check(name="running", level="warn", message=f"{who} is not ready", remedy=remedy)
        else:
            remedy = "another program may listen there (choose another --port), or it hangs: see its log"
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


def _is_good(checks: list[Check]) -> bool:
    return all(check.level != "fail" for check in checks)
