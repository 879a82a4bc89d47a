"""`python -m loadtests.gateway.slow_encoder gateway …`: the gateway as ever, with an encoder that can be made slow.

Before each batch the thread that encodes sleeps as many milliseconds as the file `encoder.pause` in the runtime
directory states; without the file it does what it always does. Everything else is the product's own.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.app.serving import run_gateway
from gateway.cli import commands
from gateway.cli.main import build_parser
from gateway.config.settings import GatewayConfig
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.installed import InstalledEncoder

PAUSE_FILE = "encoder.pause"


class SlowEncoder:
    """Another encoder, later."""

    def __init__(self, encoder: TextEncoder, pause_file: Path) -> None:
        self._encoder = encoder
        self._pause_file = pause_file

    @property
    def id(self) -> str:
        """The other's."""
        return self._encoder.id

    @property
    def dimensions(self) -> int:
        """The other's."""
        return self._encoder.dimensions

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The other's vectors, after the pause."""
        with contextlib.suppress(FileNotFoundError):
            time.sleep(float(self._pause_file.read_text()) / 1e3)
        return self._encoder.encode(texts)


async def serve_slowly(config: GatewayConfig) -> int:
    """As `gateway.app.serving.serve`."""
    installed = InstalledEncoder(config.process.runtime_dir / "encoder", "int8")

    async def load(thread: Executor) -> TextEncoder:
        return SlowEncoder(await installed.load(thread), config.process.runtime_dir / PAUSE_FILE)

    return await run_gateway(config, load_encoder=load)


if __name__ == "__main__":
    sys.exit(commands.gateway(build_parser().parse_args(), serve_slowly))
