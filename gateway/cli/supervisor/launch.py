"""The child processes of `penstock up` on this machine: programs, flags and shares of the cores."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gateway.access.local_token import FILE_NAME as ADMIN_TOKEN
from gateway.cli.supervisor.child import ChildSpec
from gateway.cli.supervisor.held_address import AddressError, HeldAddress, hold_address
from gateway.config.settings import GatewayConfig
from gateway.config.sources import variables_of
from gateway.upstreams.http1.target import Target, TargetError
from gateway.util.import_root import IMPORT_ROOT
from routing_policies.policy.document import Policy

Size = Literal["small", "large"]
SIZES: tuple[Size, ...] = ("small", "large")
ENGINE_STOP_TIMEOUT_S = 10.0
"""Time for an engine to stop: the gateway has drained by then, so an engine has nothing left to finish."""
GATEWAY_STOP_MARGIN_S = 5.0
_ENGINE_PACKAGES = ("llguidance", "numba", "torch")
ENGINE_REMEDY = "pip install 'penstock[engine]'"
KV_MEMORY_BYTES = 512 * 1024**2
"""KV memory of each bundled engine: 85,000 tokens of the large model.

A larger pool lengthens the start, which touches all of it.
"""
_PREDICTION_HEADS = "prediction_heads.safetensors"
"""The file in a model's folder that makes it propose its own draft tokens."""
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class LaunchError(RuntimeError):
    """Nothing was started; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunch:
    """One bundled engine."""

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


def plan_launch(config: GatewayConfig, policy: Policy, *, num_cores: int, python: str = sys.executable) -> LaunchPlan:
    """Plan the processes for a policy: a bundled engine is started when a deployment's URL is its socket.

    Every life of the gateway has the settings in `config`, even if the file that they came from changes.

    Raises:
        LaunchError: An engine's model or packages are missing.
    """
    threads = split_threads(num_cores)
    served = {size: _served_by(policy, socket_path(config, size)) for size in SIZES}
    engines = tuple(_engine(size, config, threads[size], ids, python) for size, ids in served.items() if ids)
    public, admin = _hold(config)
    settings = replace(
        config,
        public=replace(config.public, listen=public.inherited),
        admin=replace(config.admin, listen=admin.inherited),
    )
    gateway = ChildSpec(
        name="gateway",
        argv=(*module_argv(python, "gateway"), "gateway"),
        stop_timeout_s=config.process.drain_timeout_s + GATEWAY_STOP_MARGIN_S,
        env={**python_env(), **variables_of(settings)},
        descriptors=(*public.descriptors, *admin.descriptors),
    )
    token = config.admin.token_file or config.process.runtime_dir / ADMIN_TOKEN
    return LaunchPlan(engines=engines, gateway=gateway, public=public, admin=admin, admin_token=token)


def split_threads(num_cores: int) -> Mapping[Size, int]:
    """Compute threads for each engine.

    Threads of one engine spin while they wait for each other, so two engines must not share a core's worth of them:
    one core is left to the gateway and the engines' fronts, two thirds of the rest go to the large model. With two
    cores or one each engine gets a single thread; the gateway then takes the slices between their steps.
    """
    rest = num_cores - 1
    large = max(1, rest * 2 // 3)
    return {"large": large, "small": max(1, rest - large)}


def available_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Cores this process may use: its affinity, and the container's quota rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    return cores


def socket_path(config: GatewayConfig, size: Size) -> Path:
    """Return the path of a bundled engine's socket."""
    return config.process.runtime_dir / f"{size}.sock"


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


def _hold(config: GatewayConfig) -> tuple[HeldAddress, HeldAddress]:
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


def _served_by(policy: Policy, path: Path) -> tuple[str, ...]:
    ids = []
    for deployment in policy.deployments:
        with contextlib.suppress(TargetError):  # the gateway refuses such a policy with the reason
            if Target.parse(deployment.url).socket_path == str(path):
                ids.append(deployment.id)
    return tuple(ids)


def _engine(
    size: Size, config: GatewayConfig, num_threads: int, deployments: tuple[str, ...], python: str
) -> EngineLaunch:
    path, model_dir = socket_path(config, size), bundled_model_dir(size)
    flags = ("--model", str(model_dir), "--listen", f"unix:{path}", "--name", f"penstock-{size}")
    telemetry = config.telemetry
    bounds = ("--threads", str(num_threads), "--kv-memory-bytes", str(KV_MEMORY_BYTES))
    logged = ("--log-level", telemetry.log.level)
    traced = ("--otlp-endpoint", telemetry.trace.otlp_endpoint) if telemetry.trace.otlp_endpoint else ()
    # With heads, answers were complete sooner or as soon at every kind of task, on one thread and on two.
    drafts = ("--speculation", "auto") if (model_dir / _PREDICTION_HEADS).is_file() else ()
    argv = (*module_argv(python, "engine"), *flags, *bounds, *logged, *drafts, *traced)
    child = ChildSpec(name=size, argv=argv, stop_timeout_s=ENGINE_STOP_TIMEOUT_S, env=python_env())
    return EngineLaunch(child=child, socket_path=path, deployments=deployments)


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
