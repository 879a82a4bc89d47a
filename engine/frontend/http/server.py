"""The engine's listening socket, and uvicorn with the drain that the engine needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from engine.config import EngineConfigError
from engine.frontend.http.protocol import LimitedProtocol

KEEP_ALIVE_S = 75
_DATE_PERIOD_S = 1.0


class DrainingServer(uvicorn.Server):
    """Server that reports a signal instead of stopping; `stop` stops it."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal
        self._stopped = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT."""
        self._on_signal()

    def stop(self) -> None:
        """Close connections and return from `serve`."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Keep the date header true until `stop`; uvicorn's own loop wakes ten times a second for that."""
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _DATE_PERIOD_S)


def server_config(app: Any) -> uvicorn.Config:
    """Return the configuration of Uvicorn for the engine."""
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
    )


def bind(listen: str) -> socket.socket:
    """Return a listening socket for `unix:/path` or `host:port`. Raises EngineConfigError."""
    try:
        if listen.startswith("unix:"):
            return _bind_unix(Path(listen.removeprefix("unix:")))
        host, separator, port = listen.rpartition(":")
        if not separator or not port.isdigit():
            raise EngineConfigError(f"listen: expected unix:/path or host:port, got {listen!r}")
        host = host.strip("[]") or "127.0.0.1"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=2048)
    except OSError as error:
        raise EngineConfigError(f"listen: {listen}: {error.strerror or error}") from error


def _bind_unix(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        _remove_if_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o600)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_if_stale(path: Path) -> None:
    """Remove a socket file without a listener, which a killed process left behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise EngineConfigError(f"listen: unix:{path}: another process listens there")
