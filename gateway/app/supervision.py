"""Construct supervisors: of `penstock up`, and of a gateway with workers; each has a child for each program."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import BinaryIO, cast

from gateway.cli.supervisor import probe as probing
from gateway.cli.supervisor.child import BackOff, Child
from gateway.cli.supervisor.console import Console
from gateway.cli.supervisor.first_request import FirstRun
from gateway.cli.supervisor.launch import LaunchPlan
from gateway.cli.supervisor.probe import ProbeResult
from gateway.cli.supervisor.supervisor import POLL_S, Probe, Supervisor
from gateway.cli.workers.plan import WorkersPlan, plan_workers
from gateway.cli.workers.workers_supervisor import WorkersSupervisor, supervise_workers
from gateway.config.running import RunningFile
from gateway.config.settings import GatewayConfig
from gateway.http.address import set_tcp_options
from gateway.http.descriptors import raise_open_file_limit, release_inherited
from gateway.machine.acceptor import Acceptor
from gateway.machine.handover import CONNECTIONS_ROW
from gateway.machine.process import CONTROL
from gateway.machine.shared_counts import Cell
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.logs.whole_lines import WholeLines
from gateway.util.private_files import private_tree


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


def run_workers(config: GatewayConfig, num_workers: int) -> int:
    """Run a gateway of several processes until a signal, and return the exit status.

    Raises:
        LaunchError: An address is taken.
        OSError: The runtime directory cannot be used.
    """
    private_tree(config.process.runtime_dir)
    raise_open_file_limit()
    log = LogWriter(cast(BinaryIO, WholeLines(sys.stderr.fileno())), level=config.telemetry.log.level)
    with plan_workers(config, num_workers) as plan:
        release_inherited(config.inherited_descriptors)
        for listening in plan.public.sockets:
            listening.setblocking(False)
            if listening.family != socket.AF_UNIX:
                set_tcp_options(listening, limits=config.edge)
        running = RunningFile(
            config.process.runtime_dir,
            public=plan.public.shown,
            admin=plan.admin.shown,
            public_cert=plan.public.tls_cert,
            admin_cert=plan.admin.tls_cert,
        )
        log.start()
        try:
            with running:
                return asyncio.run(supervise_workers(supervised_workers(plan, log)))
        finally:
            log.close()


def supervised_workers(plan: WorkersPlan, log: LogWriter) -> WorkersSupervisor:
    """Return the supervisor of a plan; its processes start when it runs."""
    counts = plan.counts
    row = counts.row_of(CONNECTIONS_ROW)

    def report(name: str, text: str) -> None:
        log.event("process", level="warning", process=name, detail=text)

    def note_end(column: int) -> None:
        supervisor.note_end(column)

    children = {
        column: Child(spec, report=report, backoff=BackOff(), on_end=partial(note_end, column))
        for column, spec in enumerate((plan.control, *plan.workers))
    }
    acceptor = Acceptor(
        plan.public.sockets,
        {column: channel for column, channel in plan.channels.items() if column != CONTROL},
        num_closed=lambda column: counts.words[counts.cell(row, Cell.CLOSED, column)],
        on_ready=lambda column: supervisor.note_ready(column),
    )
    listening = {"public": (plan.public.shown,), "admin": (plan.admin.shown,)}
    supervisor: WorkersSupervisor = WorkersSupervisor(
        plan,
        children,
        acceptor,
        report=report,
        on_started=lambda: log.event("started", listening=listening, workers=len(plan.workers)),
    )
    return supervisor
