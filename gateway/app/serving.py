"""One gateway as a process: its signals, its log, its collector."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, Final, cast

from gateway.app.app import Gateway, LoadEncoder
from gateway.app.runtime import Surroundings
from gateway.config.running import RunningFile
from gateway.config.settings import GatewayConfig
from gateway.http.descriptors import raise_open_file_limit, release_inherited
from gateway.machine.process import MachineProcess, MachineProcessSpec
from gateway.telemetry.logs.bridge import LoggingBridge
from gateway.telemetry.logs.whole_lines import WholeLines
from gateway.util.doubling_pauses import lasting
from gateway.util.gc_policy import GcPolicy
from gateway.util.private_files import private_tree
from gateway.util.workers import LoopThreads

CLOSE_S: Final = 4.0
"""Time after the drain for closing everything; then the process ends without it."""

_STDERR: Final = 2


async def run_gateway(
    config: GatewayConfig, *, log_stream: BinaryIO | None = None, load_encoder: LoadEncoder | None = None
) -> int:
    """Run until SIGTERM or SIGINT, drain, and return the exit status. SIGHUP reads the policy file at once.

    Raises PolicyFileError, ConfigError, UnsafeFolder or another OSError when it cannot start.
    """
    private_tree(config.process.runtime_dir)
    gateway = Gateway(config, log_stream=log_stream or sys.stderr.buffer, load_encoder=load_encoder)
    return await _run(gateway, _announced)


async def run_machine_process(spec: MachineProcessSpec, config: GatewayConfig) -> int:
    """Run one process of a gateway with workers; as `run_gateway`."""
    member = MachineProcess(spec, config.process.runtime_dir)
    log_stream = cast(BinaryIO, WholeLines(_STDERR))
    gateway = Gateway(config, log_stream=log_stream, around=Surroundings(member=member))
    if not member.is_control and not await member.handed.until_allowed():
        return 0
    return await _run(gateway, _reported)


async def _run(gateway: Gateway, announced: Callable[[Gateway], AbstractContextManager[object]]) -> int:
    """Serve until a signal; `announced` lets others know of the process while it serves."""
    config = gateway.config
    raise_open_file_limit()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(LoopThreads())
    collector = GcPolicy(lambda: gateway.is_idle)
    bridge = LoggingBridge(gateway.log)
    logging.getLogger("penstock").addHandler(bridge)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_soon)
    try:
        await gateway.start()
        release_inherited(config.inherited_descriptors)
        with announced(gateway):
            collector.start()
            watching = loop.create_task(lasting(collector.run, "collector", gateway.note_failed_task), name="collector")
            await stopping.wait()
            watching.cancel()
        await gateway.leave()
        await _stop(gateway, config.process.drain_timeout_s + CLOSE_S)
    finally:
        logging.getLogger("penstock").removeHandler(bridge)
    return 0


async def _stop(gateway: Gateway, timeout_s: float) -> None:
    """Drain and close within `timeout_s`; what still hangs then is abandoned."""
    try:
        async with asyncio.timeout(timeout_s):
            await gateway.stop()
    except TimeoutError:
        gateway.log.event("stop_abandoned", level="error", after_s=timeout_s)
        gateway.log.flush()


def _reported(gateway: Gateway) -> AbstractContextManager[object]:
    """Report to the supervisor that the process serves."""
    if gateway.member is not None:
        gateway.member.handed.announce()
    return nullcontext()


def _announced(gateway: Gateway) -> RunningFile:
    """Return the file that names the listeners to commands; below `penstock up`, that process has written it."""
    config, (public, admin) = gateway.config, (gateway.server.addresses[name][0] for name in ("public", "admin"))
    return RunningFile(
        config.process.runtime_dir,
        public=public,
        admin=admin,
        public_cert=config.public.tls_cert,
        admin_cert=config.admin.tls_cert,
    )
