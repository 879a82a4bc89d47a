"""The implementation of each command.

Slow imports are inside their command, so that `penstock --help` answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gateway.util.import_root import IMPORT_ROOT

if TYPE_CHECKING:
    from gateway.cli.supervisor.launch import LaunchPlan
    from gateway.cli.supervisor.served_model import Role
    from gateway.config.running import RunningFile
    from gateway.config.settings import GatewayConfig

KEY_PREFIX = "sk-penstock-"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SETTING_FLAGS = {
    "policy.document": "policy",
    "process.runtime_dir": "runtime_dir",
    "process.workers": "workers",
    "public.listen": "public_listen",
    "admin.listen": "admin_listen",
    "telemetry.log.level": "log_level",
}
"""Path of a setting to the argument that gives it."""


class CommandError(RuntimeError):
    """The command could not do its work; the message has the cause and the remedy."""


class UsageError(CommandError):
    """A setting or an argument is wrong."""


def up(options: argparse.Namespace) -> int:
    """Start engines and gateway, and restart them as needed until a signal."""
    from gateway.app.connections.certificates import read_certificates
    from gateway.app.connections.store_opening import open_store
    from gateway.app.policy_acceptance import policy_checks
    from gateway.app.supervision import supervised
    from gateway.cli.machine_checks import available_memory_bytes
    from gateway.cli.supervisor.console import Console
    from gateway.cli.supervisor.first_request import first_run_of
    from gateway.cli.supervisor.launch import LaunchError, available_cores, plan_launch, with_resume_key
    from gateway.cli.supervisor.model_choice import ModelFlagError, choose_models
    from gateway.cli.supervisor.runtime_lock import RuntimeDirError, RuntimeLock
    from gateway.cli.supervisor.supervisor import supervise
    from gateway.cli.workers.plan import num_workers_of
    from gateway.config.checks import ConfigError
    from gateway.policies.policy_file import PolicyFileError
    from gateway.policies.starting import starting_policy
    from gateway.routing.quality_files import load_predictors
    from gateway.telemetry.memory import memory_limit_bytes
    from gateway.util.private_files import private_umask
    from routing_policies.policy.deployment import UP_RESUME_KEY

    config = settings(options)
    try:
        flags: dict[Role, str | None] = {"model": options.model, "small": options.small, "large": options.large}
        choice = choose_models(config, flags, free_bytes=available_memory_bytes())
        config = choice.applied(config)
        read_certificates(config)
        environment = with_resume_key(os.environ)
        checks = policy_checks(config, environment, load_predictors(config.policy.quality_dir))
        # A bad policy file is an error before anything is made; only the folder's holder reads the store.
        is_there = choice.text is None and not config.policy.is_in_store
        found = starting_policy(config, open_store, checks) if is_there else None
        with private_umask(), RuntimeLock(config.process.runtime_dir):
            choice.write()
            policy, note = found or starting_policy(config, open_store, checks)
            console = Console(sys.stdout)
            for line in (choice.note, note):
                if line is not None:
                    console.print_line(line)
            num_cores = available_cores()
            memory_bytes = memory_limit_bytes(config.process.memory_limit_mb)
            workers = num_workers_of(config, num_cores, beside_engines=True, memory_bytes=memory_bytes)
            config = replace(config, process=replace(config.process, workers=workers))
            key = environment[UP_RESUME_KEY]
            plan = plan_launch(config, policy, choice.served, num_cores=num_cores, resume_key=key)
            with plan, _announced(config, plan):
                first_run = first_run_of(policy, _own_command(config, "explain ID"))
                return asyncio.run(supervise(supervised(plan, console, first_run=first_run)))
    except (ConfigError, PolicyFileError, ModelFlagError) as error:
        raise UsageError(str(error)) from error
    except (RuntimeDirError, LaunchError) as error:
        raise CommandError(str(error)) from error


def _own_command(config: GatewayConfig, words: str) -> str:
    """Return how a user beside this process calls a command, with the runtime directory if it needs that."""
    called = Path(sys.argv[0])
    if shutil.which("penstock") is not None:
        program = "penstock"
    else:
        program = str(called) if called.name == "penstock" else f"{sys.executable} -m gateway"
    folder = config.process.runtime_dir
    where = "" if folder == Path("run").absolute() else f" --runtime-dir {shlex.quote(str(folder))}"
    return f"{program} {words}{where}"


def _announced(config: GatewayConfig, plan: LaunchPlan) -> RunningFile:
    """Return the file that names the listeners to commands in the same runtime directory."""
    from gateway.config.running import RunningFile

    return RunningFile(
        config.process.runtime_dir,
        public=plan.public.shown,
        admin=plan.admin.shown,
        public_cert=plan.public.tls_cert,
        admin_cert=plan.admin.tls_cert,
    )


def gateway(
    options: argparse.Namespace,
    serve: Callable[[GatewayConfig], Coroutine[None, None, int]],
    supervise: Callable[[GatewayConfig, int], int] | None = None,
) -> int:
    """Run the gateway until a signal.

    Args:
        options: The command line.
        serve: Serves in this process; from `gateway.app.serving`.
        supervise: Starts several processes that serve; None: `serve`, whatever the number of workers.
    """
    import uvloop

    from gateway.cli.supervisor.launch import LaunchError, available_cores
    from gateway.cli.workers.plan import num_workers_of
    from gateway.config.checks import ConfigError
    from gateway.policies.policy_file import PolicyFileError
    from gateway.telemetry.memory import memory_limit_bytes
    from gateway.util.private_files import UnsafeFolder, private_umask

    config = settings(options)
    try:
        with private_umask():
            memory_bytes = memory_limit_bytes(config.process.memory_limit_mb)
            num_workers = num_workers_of(config, available_cores(), memory_bytes=memory_bytes)
            if supervise is not None and num_workers > 1:
                return supervise(config, num_workers)
            return uvloop.run(serve(config))
    except LaunchError as error:
        raise CommandError(str(error)) from error
    except (ConfigError, PolicyFileError) as error:
        raise UsageError(str(error)) from error
    except UnsafeFolder as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            both = f"{config.public.listen} or {config.admin.listen}"
            raise CommandError(f"{both} is already in use; choose others with --port and --admin-port") from error
        if error.filename is not None:
            problem = f"{error.filename}: {error.strerror}; choose another folder with --runtime-dir"
            raise CommandError(problem) from error
        raise CommandError(f"cannot listen: {error}; check --public-listen and --admin-listen") from error


def run_engine(arguments: Sequence[str]) -> int:
    """Become `python -m engine`; does not return. Raises CommandError without the packages that it computes with."""
    from gateway.cli.supervisor.launch import ENGINE_REMEDY, missing_engine_packages

    if missing := missing_engine_packages():
        raise CommandError(f"the engine needs {', '.join(missing)}; {ENGINE_REMEDY}")
    _become("engine", arguments)


def run_models(arguments: Sequence[str]) -> int:
    """Become `python -m engine models`; does not return. Raises CommandError without the engine's packages."""
    return run_engine(["models", *arguments])


def run_bench(arguments: Sequence[str]) -> int:
    """Become `python -m loadtests`; does not return. Raises CommandError outside a source checkout."""
    if not (_root() / "loadtests" / "__main__.py").is_file():
        raise CommandError("benchmarks come with the source, not with the package; run this inside a checkout")
    _become("loadtests", arguments)


def keys_new(options: argparse.Namespace) -> int:
    """Print a fresh key and the lines for the policy document. The key itself is stored nowhere."""
    import datetime

    key_id = options.key_id or f"key-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    for flag, value in (("--tenant", options.tenant), ("--id", key_id)):
        if not _ID.fullmatch(value):
            raise UsageError(f"{flag}: expected a-z, 0-9, dot, underscore and hyphen, up to 64, got {value!r}")
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    digest = sha256(key.encode()).hexdigest()
    if options.json:
        import json

        print(json.dumps({"key": key, "tenant": options.tenant, "id": key_id, "sha256": digest}))
        return 0
    print(f"key for {options.tenant}, shown this once:\n\n  {key}\n\nin the policy, under tenants:\n")
    print(f'  - id: {options.tenant}\n    keys:\n      - {{id: {key_id}, sha256: "{digest}"}}')
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Check the machine; 1 when a check failed."""
    from gateway.cli import doctor as examination

    return examination.run_doctor(lambda: settings(options), as_json=options.json)


def settings(options: argparse.Namespace) -> GatewayConfig:
    """Load the settings from file, environment and flags. Raises UsageError."""
    from gateway.config.checks import ConfigError
    from gateway.config.sources import load_config

    values = vars(options)
    flags = {key: values.get(name) for key, name in _SETTING_FLAGS.items()}
    try:
        base = load_config(options.config, os.environ, flags)
        for listener, address in (("public", base.public.listen), ("admin", base.admin.listen)):
            port = values.get("port" if listener == "public" else "admin_port")
            if port is not None:
                flags[f"{listener}.listen"] = _with_port(address, port)
        return load_config(options.config, os.environ, flags)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _with_port(address: str, port: int) -> str:
    if address.startswith(("unix:", "fd:")):
        raise UsageError(f"a port was given, but the listener is {address}; use --public-listen host:port")
    return f"{address.rpartition(':')[0]}:{port}"


def _become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process, so that signals and exit codes are the other program's own."""
    from gateway.cli.supervisor.launch import module_argv, python_env

    os.environ.update(python_env())
    argv = [*module_argv(sys.executable, module), *arguments]
    sys.stdout.flush()
    os.execv(argv[0], argv)


def _root() -> Path:
    return IMPORT_ROOT


def wait_ready(options: argparse.Namespace) -> int:
    """Wait until a server answers, for service managers that start what needs it."""
    from gateway.cli.supervisor.probe import ANSWERED, can_be_probed, wait_until_up
    from gateway.http.certificate import CertificateError

    if not can_be_probed(options.url):
        raise UsageError(f"URL: expected one such as http://127.0.0.1:8080/readyz, got {options.url!r}")
    try:
        last = asyncio.run(wait_until_up(options.url, options.timeout_s, tls_cert=options.tls_cert))
    except CertificateError as error:
        raise UsageError(str(error)) from error
    if last != ANSWERED:
        raise CommandError(f"{options.url}: {last} after {options.timeout_s:g} s; the server's log has the reason")
    return 0


def ray_deploy(options: argparse.Namespace) -> int:
    """Deploy the engine as a Serve application on a Ray cluster, and wait until it runs."""
    from gateway.cli.cluster.ray_dashboard import RayDashboard, RayDeployError
    from gateway.cli.cluster.serve_document import application

    if not options.dashboard.startswith(("http://", "https://")):
        raise UsageError(f"--dashboard: expected one such as http://ray-head:8265, got {options.dashboard!r}")
    if options.min_replicas > options.max_replicas:
        raise UsageError(f"--min-replicas: {options.min_replicas} is above --max-replicas {options.max_replicas}")
    if options.working_dir is not None and "://" not in options.working_dir:
        raise UsageError(
            f"--working-dir: {options.working_dir!r} is no URI; Ray takes a zip file that every node can read, such as "
            "https://files.example/checkout.zip or s3://bucket/checkout.zip"
        )
    scaling = {name: getattr(options, name) for name in ("min_replicas", "max_replicas", "target_wait_s")}
    arguments = {
        "model": options.model,
        "num_cpus": options.cpus,
        "tensor_parallel": options.tensor_parallel,
        "num_gpus_per_rank": options.gpus_per_rank,
        "scaling": scaling,
    }
    dashboard = RayDashboard(options.dashboard)
    try:
        dashboard.submit(application(options.name, arguments, working_dir=options.working_dir), port=options.port)
        print(f"deployed {options.name}")
        if options.wait_s > 0:
            dashboard.wait_until_running(options.name, options.wait_s)
            print(f"{options.name} is running")
    except RayDeployError as error:
        raise CommandError(str(error)) from error
    finally:
        dashboard.close()
    return 0
