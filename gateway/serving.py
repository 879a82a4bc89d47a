"""One gateway as a process: its signals, its log, its collector."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import BinaryIO, Final

from gateway.app import Gateway, LoadEncoder
from gateway.collector import Collector
from gateway.config import GatewayConfig
from gateway.http.descriptors import raise_open_file_limit
from gateway.local_file import private_tree
from gateway.telemetry.bridge import LoggingBridge

_STDERR: Final = 2


async def serve(
    config: GatewayConfig, *, log_stream: BinaryIO | None = None, load_encoder: LoadEncoder | None = None
) -> int:
    """Run until SIGTERM or SIGINT, drain, and return the exit status. SIGHUP looks at the policy file at once.

    Raises PolicyFileError, ConfigError, UnsafeFolder or another OSError when it cannot start.
    """
    private_tree(config.runtime_dir)
    raise_open_file_limit()
    loop = asyncio.get_running_loop()
    gateway = Gateway(config, log_stream=log_stream or sys.stderr.buffer, load_encoder=load_encoder)
    collector = Collector(lambda: gateway.is_idle)
    bridge = LoggingBridge(gateway.log)
    logging.getLogger("penstock").addHandler(bridge)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_soon)
    try:
        await gateway.start()
        _let_go(config.inherited_descriptors)
        collector.start()
        looking = loop.create_task(collector.run(), name="collector")
        await stopping.wait()
        looking.cancel()
        await gateway.leave()
        await gateway.stop()
    finally:
        logging.getLogger("penstock").removeHandler(bridge)
    return 0


def _let_go(descriptors: tuple[int, ...]) -> None:
    """Close what was inherited, which the listeners have duplicates of, so that none accepts once they are closed."""
    for number in descriptors:
        if number > _STDERR:
            os.close(number)
