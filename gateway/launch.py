"""What `penstock up` starts on this machine: the programs, their flags and their share of its cores."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.child import ChildSpec
from gateway.config import GatewayConfig
from routing_policies.document import Policy

Size = Literal["small", "large"]
SIZES: tuple[Size, ...] = ("small", "large")
ENGINE_STOP_TIMEOUT_S = 10.0
"""The gateway has drained by then, so an engine has nothing left to finish."""
GATEWAY_STOP_MARGIN_S = 5.0
KV_MEMORY_BYTES = 512 * 1024**2
"""For each bundled engine: 85,000 tokens of the large model. More lengthens the start, which touches all of it."""
_PREDICTION_HEADS = "prediction_heads.safetensors"
"""In the folder of a model that says drafts itself."""
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class LaunchError(RuntimeError):
    """Nothing was started; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunch:
    """One bundled engine."""

    child: ChildSpec
    socket_path: Path
    deployments: tuple[str, ...] = ()
    """Ids of the policy's deployments that it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that is started, and where the gateway will listen."""

    engines: tuple[EngineLaunch, ...]
    gateway: ChildSpec
    public: str
    admin: str


def plan_launch(
    config: GatewayConfig, policy: Policy, gateway_flags: Sequence[str], *, num_cores: int, python: str = sys.executable
) -> LaunchPlan:
    """The plan for a policy: a bundled engine is started when a deployment's URL is its socket. Raises LaunchError."""
    threads = split_threads(num_cores)
    served = {size: _served_by(policy, socket_path(config, size)) for size in SIZES}
    engines = tuple(_engine(size, config, threads[size], ids, python) for size, ids in served.items() if ids)
    public, admin = settle_address(config.public_listen, "--port"), settle_address(config.admin_listen, "--admin-port")
    flags = (*gateway_flags, "--public-listen", public, "--admin-listen", admin)
    gateway = ChildSpec(
        name="gateway",
        argv=(*module_argv(python, "gateway"), "gateway", *flags),
        stop_timeout_s=config.drain_timeout_s + GATEWAY_STOP_MARGIN_S,
        env=python_env(),
    )
    return LaunchPlan(engines=engines, gateway=gateway, public=public, admin=admin)


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
    """Where a bundled engine listens."""
    return config.runtime_dir / f"{size}.sock"


def bundled_model_dir(size: Size) -> Path:
    """Folder of a bundled model, found without importing the engine. Raises LaunchError when it is not there."""
    spec = importlib.util.find_spec("engine")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "bundled" / "models" / f"penstock-{size}"
        if (folder / "config.json").is_file():
            return folder
    raise LaunchError(f"the bundled {size} model is missing from this installation; install penstock again")


def settle_address(address: str, flag: str) -> str:
    """The address with port 0 replaced by a free one. Raises LaunchError when it is taken or not of this machine."""
    if address.startswith("unix:"):
        return address
    host, _, port = address.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            return f"{host}:{probe.getsockname()[1]}"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LaunchError(f"{address} is already in use; stop what listens there or choose {flag} N") from error
        raise LaunchError(f"cannot listen on {address}: {error.strerror or error}; choose another address") from error


def _served_by(policy: Policy, path: Path) -> tuple[str, ...]:
    return tuple(deployment.id for deployment in policy.deployments if deployment.url == f"unix:{path}")


def _engine(
    size: Size, config: GatewayConfig, num_threads: int, deployments: tuple[str, ...], python: str
) -> EngineLaunch:
    path, model_dir = socket_path(config, size), bundled_model_dir(size)
    flags = ("--model", str(model_dir), "--listen", f"unix:{path}", "--name", f"penstock-{size}")
    bounds = ("--threads", str(num_threads), "--kv-memory-bytes", str(KV_MEMORY_BYTES), "--log-level", config.log_level)
    traced = ("--otlp-endpoint", config.otlp_endpoint) if config.otlp_endpoint else ()
    # With heads answers were said sooner or as soon at every kind of task, on one thread and on two.
    drafts = ("--speculation", "auto") if (model_dir / _PREDICTION_HEADS).is_file() else ()
    argv = (*module_argv(python, "engine"), *flags, *bounds, *drafts, *traced)
    child = ChildSpec(name=size, argv=argv, stop_timeout_s=ENGINE_STOP_TIMEOUT_S, env=python_env())
    return EngineLaunch(child=child, socket_path=path, deployments=deployments)


def module_argv(python: str, name: str) -> tuple[str, ...]:
    """`python -m name` that finds our packages and nothing else of that name.

    -P keeps the working directory out of the search path: a folder there called "engine" must not win. A checkout
    that was never installed is reachable only through `python_env`.
    """
    return (python, "-P", "-u", "-m", name)


def python_env() -> dict[str, str]:
    """Variables under which `module_argv` finds the packages beside this one; none are needed once installed."""
    root = str(Path(__file__).resolve().parent.parent)
    if Path(root).name in ("site-packages", "dist-packages"):
        return {}
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}
