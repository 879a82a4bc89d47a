"""`penstock ray deploy`: the engine as a Serve application, by the REST API of a Ray cluster's dashboard."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.cli.cluster.serve_document import ServeDetails, application, merged
from gateway.cli.commands import CommandError, UsageError

if TYPE_CHECKING:
    import httpx

    from gateway.cli.parsing.command_parser import CommandParser

PATH: Final = "/api/serve/applications/"
_POLL_S: Final = 2.0
_TIMEOUT_S: Final = 30.0
_FAILED: Final = frozenset({"DEPLOY_FAILED", "UNHEALTHY"})


def add_ray(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    """Add the command and its subcommand."""
    parser = commands_of.add_parser("ray", help="engines under Ray Serve: ray deploy")
    sub = parser.add_subparsers(dest="ray_command", required=True, metavar="COMMAND")
    one = sub.add_parser("deploy", help="deploy the engine on a Ray cluster, beside its other applications")
    one.add_argument("--dashboard", metavar="URL", default="http://127.0.0.1:8265", help="dashboard of the cluster")
    one.add_argument("--model", required=True, metavar="MODEL", help="as for `penstock engine --model`, on every node")
    one.add_argument("--name", default="engine", help="name of the application")
    one.add_argument("--min-replicas", type=int, default=1, metavar="N", help="least number of replicas")
    one.add_argument("--max-replicas", type=int, default=4, metavar="N", help="largest number of replicas")
    one.add_argument(
        "--target-wait-s", type=float, default=0.5, metavar="S", help="queue wait above which replicas are added"
    )
    one.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="ranks of one replica, on one node")
    one.add_argument("--gpus-per-rank", type=float, default=0.0, metavar="N", help="1 on GPU nodes, 0 on CPU nodes")
    one.add_argument("--cpus", type=float, default=1.0, metavar="N", help="CPUs of one replica")
    one.add_argument("--working-dir", metavar="URI", help="checkout for the replicas; without it their image has one")
    one.add_argument("--port", type=int, default=8000, metavar="N", help="port of the proxies, where none runs yet")
    one.add_argument("--wait-s", type=float, default=900.0, metavar="S", help="longest wait until it runs; 0: none")
    one.set_defaults(command=deploy)


def deploy(options: argparse.Namespace) -> int:
    """Deploy the application and wait until it runs."""
    import httpx  # only who uses it pays for its imports

    if not options.dashboard.startswith(("http://", "https://")):
        raise UsageError(f"--dashboard: expected one such as http://ray-head:8265, got {options.dashboard!r}")
    own = application(options.name, _arguments(options), working_dir=options.working_dir)
    with httpx.Client(base_url=options.dashboard, timeout=_TIMEOUT_S, trust_env=False) as client:
        submit(client, own, port=options.port)
        print(f"deployed {options.name}")
        if options.wait_s > 0:
            wait_until_running(client, options.name, options.wait_s)
            print(f"{options.name} is running")
    return 0


def submit(client: httpx.Client, own: dict[str, Any], *, port: int) -> None:
    """Send the application with those that the cluster has; raises CommandError."""
    _send(client, "PUT", merged(_details(client), own, port=port))


def wait_until_running(
    client: httpx.Client,
    name: str,
    limit_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until an application runs; raises CommandError when it fails or takes too long."""
    ends_at = clock() + limit_s
    while True:
        found = _details(client).applications.get(name)
        status = "" if found is None else found.status
        if status == "RUNNING":
            return
        if status in _FAILED:
            message = "" if found is None else found.message.strip()[-1000:]
            raise CommandError(f"{name}: {status}: {message or 'the dashboard has the reason'}")
        if clock() >= ends_at:
            raise CommandError(f"{name} does not run after {limit_s:g} s (status {status or 'unknown'})")
        sleep(_POLL_S)


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "model": options.model,
        "num_cpus": options.cpus,
        "tensor_parallel": options.tensor_parallel,
        "num_gpus_per_rank": options.gpus_per_rank,
        "scaling": {
            "min_replicas": options.min_replicas,
            "max_replicas": options.max_replicas,
            "target_wait_s": options.target_wait_s,
        },
    }


def _details(client: httpx.Client) -> ServeDetails:
    try:
        return msgspec.json.decode(_send(client, "GET", None), type=ServeDetails)
    except msgspec.DecodeError as error:
        raise CommandError(f"{client.base_url}: no Ray dashboard answers there ({error})") from error


def _send(client: httpx.Client, method: str, document: dict[str, Any] | None) -> bytes:
    import httpx

    try:
        response = client.request(method, PATH, json=document)
    except httpx.HTTPError as error:
        raise CommandError(f"{client.base_url}: {error}; check --dashboard") from error
    if response.status_code != 200:
        raise CommandError(f"{client.base_url}: status {response.status_code}: {response.text[:500]}")
    return response.content
