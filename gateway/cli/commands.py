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
import sys
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gateway.util.import_root import IMPORT_ROOT

if TYPE_CHECKING:
    from gateway.config.settings import GatewayConfig

KEY_PREFIX = "sk-penstock-"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SETTING_FLAGS = {
    "policy.document": "policy",
    "process.runtime_dir": "runtime_dir",
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
    from gateway.app.certificates import read_certificates
    from gateway.app.policy_acceptance import policy_checks
    from gateway.app.store_opening import open_store
    from gateway.app.supervision import supervised
    from gateway.cli.supervisor.console import Console
    from gateway.cli.supervisor.launch import LaunchError, available_cores, plan_launch
    from gateway.cli.supervisor.runtime_lock import RuntimeDirError, RuntimeLock
    from gateway.cli.supervisor.supervisor import supervise
    from gateway.config.checks import ConfigError
    from gateway.policies.policy_file import PolicyFileError
    from gateway.policies.starting import starting_policy
    from gateway.routing.quality_files import load_predictors
    from gateway.util.private_files import private_umask

    config = settings(options)
    try:
        read_certificates(config)
        checks = policy_checks(config, os.environ, load_predictors(config.policy.quality_dir))
        # A bad policy file is an error before anything is made; only the folder's holder reads the store.
        found = None if config.policy.is_in_store else starting_policy(config, open_store, checks)
        with private_umask(), RuntimeLock(config.process.runtime_dir):
            policy, note = found or starting_policy(config, open_store, checks)
            console = Console(sys.stdout)
            if note is not None:
                console.print_line(note)
            with plan_launch(config, policy, num_cores=available_cores()) as plan:
                return asyncio.run(supervise(supervised(plan, console, needs_key=policy.has_keys)))
    except (ConfigError, PolicyFileError) as error:
        raise UsageError(str(error)) from error
    except (RuntimeDirError, LaunchError) as error:
        raise CommandError(str(error)) from error


def gateway(options: argparse.Namespace, serve: Callable[[GatewayConfig], Coroutine[None, None, int]]) -> int:
    """Run the gateway in this process until a signal; `serve` comes from `gateway.app.app`."""
    import uvloop

    from gateway.config.checks import ConfigError
    from gateway.policies.policy_file import PolicyFileError
    from gateway.util.private_files import UnsafeFolder, private_umask

    config = settings(options)
    try:
        with private_umask():
            return uvloop.run(serve(config))
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


def run_bench(arguments: Sequence[str]) -> int:
    """Become `python -m loadtests`; does not return. Raises CommandError outside a source checkout."""
    if not (_root() / "loadtests" / "__main__.py").is_file():
        raise CommandError("benchmarks come with the source, not with the package; run this inside a checkout")
    _become("loadtests", arguments)


def policy_check(options: argparse.Namespace) -> int:
    """Check a policy and run its tests; 1 when there is anything to report."""
    import msgspec

    from gateway.config.checks import ConfigError
    from gateway.routing.quality_files import load_predictors
    from routing_policies.check import run_tests
    from routing_policies.loading import load_document
    from routing_policies.policy.problems import PolicyError, Problem

    problems: Sequence[Problem] = ()
    num_tests = 0
    try:
        path, text, variables = _policy_text(options)
        policy, document = load_document(text, source=str(path), variables=variables)
        result = run_tests(policy, document, load_predictors(settings(options).policy.quality_dir))
        problems, num_tests = result.failures, result.num_tests
    except PolicyError as error:
        path, problems = Path(error.source), error.problems
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if options.format == "json":
        report = {"file": str(path), "ok": not problems, "num_tests": num_tests, "problems": problems}
        print(msgspec.json.encode(report).decode())
    elif problems:
        print("\n".join(problem.render(str(path)) for problem in problems))
    else:
        print(f"{path}: good, {num_tests} test{'' if num_tests == 1 else 's'} passed")
    return 1 if problems else 0


def policy_show(options: argparse.Namespace) -> int:
    """Print a policy with its defaults filled in, and the routes that exist unwritten as comments."""
    import msgspec
    import yaml

    from gateway.policies.policy_file import revision_of
    from routing_policies.loading import load_policy
    from routing_policies.matching import RouteTable
    from routing_policies.policy.problems import PolicyError

    try:
        path, text, variables = _policy_text(options)
        policy = load_policy(text, source=str(path), variables=variables)
    except PolicyError as error:
        raise CommandError(str(error)) from error
    routes = RouteTable(policy).effective_routes()
    if options.json:
        shown = {"file": str(path), "revision": revision_of(text.encode()), "policy": policy, "routes": routes}
        print(msgspec.json.encode(shown).decode())
        return 0
    print(f"# {path}, revision {revision_of(text.encode())}")
    print(yaml.safe_dump(msgspec.to_builtins(policy), sort_keys=False, allow_unicode=True, width=120), end="")
    for route in routes[len(policy.routes) :]:
        ids = ", ".join(candidate.id for candidate in route.select.resolved())
        print(f"# {route.id}: {', '.join(route.match.models)} -> {ids} ({route.select.policy})")
    return 0


def policy_schema(options: argparse.Namespace) -> int:
    """Print the JSON Schema of policies."""
    import json

    from routing_policies.policy.schema import schema_of_policies

    print(json.dumps(schema_of_policies(), indent=2))
    return 0


def policy_train(options: argparse.Namespace) -> int:
    """Learn one pair's coefficients and write them; the last line printed is JSON."""
    import json

    import msgspec

    from gateway.cli.label_training import train_from_gateway
    from gateway.cli.quality_training import TrainingError, report_of, train_from_files

    if options.data and not (options.weak and options.strong):
        raise UsageError("--data: needs --weak and --strong, the names that outcomes have in the files")
    if options.from_gateway and options.embed:
        raise UsageError("--embed: is for --data; labels of a gateway have their embeddings already, where it made any")
    folder = settings(options).process.runtime_dir / "encoder" if options.embed else None
    held: dict[str, Any] = {}
    try:
        if options.from_gateway:
            model, held = train_from_gateway(options)
        else:
            model = train_from_files(options.data, options.weak, options.strong, encoder_folder=folder)
        content = msgspec.json.format(msgspec.json.encode(model, order="deterministic"), indent=1)
        options.out.write_bytes(content + b"\n")
    except (TrainingError, OSError) as error:
        raise CommandError(str(error)) from error
    if not options.json:
        print(f"{options.out}: learned from {model.num_prompts} prompts; put it into the folder of policy.quality_dir")
    print(json.dumps({**report_of(model, len(content)), **held}))
    return 0


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


def _policy_text(options: argparse.Namespace) -> tuple[Path, str, dict[str, str]]:
    """Return a policy file's name as given, its text, and the variables in it.

    Raises:
        UsageError: The file cannot be read.
        PolicyError: The file is not UTF-8 text.
    """
    from routing_policies.policy.problems import PolicyError, Problem

    config = settings(options)
    path: Path = options.file or config.policy.document
    try:
        return path, path.read_text(encoding="utf-8-sig"), config.process.policy_variables
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(line=line, column=column, path="", message="not UTF-8; save it as that")
        raise PolicyError(str(path), [problem]) from error


def _become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process, so that signals and exit codes are the other program's own."""
    from gateway.cli.supervisor.launch import module_argv, python_env

    os.environ.update(python_env())
    argv = [*module_argv(sys.executable, module), *arguments]
    sys.stdout.flush()
    os.execv(argv[0], argv)


def _root() -> Path:
    return IMPORT_ROOT
