"""`penstock gateway` with a finer check its event loop, or with a request's work that never ends: for tests.

python -m tests.gateway.watched_gateway NAME [flags of `penstock gateway`]
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import gateway.app.app as app_module
from gateway.app.app import Gateway
from gateway.chat.request import ChatRequestParser
from gateway.cli.main import main
from gateway.telemetry.lag import LagMeter

LOOK_S: Final = 0.001


def _watch() -> None:
    """Every millisecond instead of ten times a second."""
    vars(app_module)["LagMeter"] = partial(LagMeter, interval_s=LOOK_S)


def _hang(*_: object) -> None:
    threading.Event().wait()


def _stick_reading() -> None:
    """Reading a long body never ends."""
    ChatRequestParser.parse = _hang  # type: ignore[assignment,method-assign]


def _stick_files() -> None:
    """So does reading files, as on a disk that is gone."""
    start, hanging = Gateway.start, set[asyncio.Future[None]]()

    async def start_and_hang(self: Gateway) -> None:
        await start(self)
        hanging.update(asyncio.ensure_future(asyncio.to_thread(_hang)) for _ in range(64))

    Gateway.start = start_and_hang  # type: ignore[method-assign]


CHANGES: Final[Mapping[str, Callable[[], None]]] = {
    "watched": _watch,
    "stuck_reading": _stick_reading,
    "stuck_files": _stick_files,
}


if __name__ == "__main__":
    CHANGES[sys.argv[1]]()
    sys.exit(main(["gateway", *sys.argv[2:]]))
