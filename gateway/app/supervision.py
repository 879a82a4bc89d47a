"""Construct what `penstock up` runs: the supervisor and a child for each program of the plan."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from gateway.cli.supervisor import probe as probing
from gateway.cli.supervisor.child import BackOff, Child
from gateway.cli.supervisor.console import Console
from gateway.cli.supervisor.first_request import FirstRun
from gateway.cli.supervisor.launch import LaunchPlan
from gateway.cli.supervisor.probe import ProbeResult
from gateway.cli.supervisor.supervisor import POLL_S, Probe, Supervisor


def supervised(
    plan: LaunchPlan,
    console: Console,
    *,
    first_run: FirstRun,
    probe: Probe | None = None,
    clock: Callable[[], float] = time.monotonic,
    poll_s: float = POLL_S,
) -> Supervisor:
    """Return the supervisor of a plan; its children start when it runs. By default `probe` sends requests."""

    def get(address: str, path: str) -> Awaitable[ProbeResult | None]:
        return probing.get(address, path, tls_cert=plan.public.tls_cert if address == plan.public.shown else None)

    engines = [Child(engine.child, report=console.line, backoff=BackOff()) for engine in plan.engines]
    gateway = Child(plan.gateway, report=console.line, backoff=BackOff())
    return Supervisor(
        plan, engines, gateway, console=console, probe=probe or get, first_run=first_run, clock=clock, poll_s=poll_s
    )
