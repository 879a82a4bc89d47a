"""WholeLines: a log stream that several processes write to without mixing their lines."""

from __future__ import annotations

import io
import os
import select
from typing import Final

_PIPE_BYTES: Final = select.PIPE_BUF
"""Bytes that one write to a pipe keeps together, by POSIX."""


class WholeLines(io.RawIOBase):
    """Writes whole lines to a descriptor, in pieces that the kernel keeps together where a line is short enough."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write lines; returns when all are written. Raises OSError."""
        rest = memoryview(data)
        while rest:
            piece = bytes(rest[:_PIPE_BYTES])
            end = piece.rfind(b"\n") + 1 if len(rest) > _PIPE_BYTES else len(piece)
            rest = rest[os.write(self._descriptor, piece[:end] if end else piece) :]
        return len(data)
