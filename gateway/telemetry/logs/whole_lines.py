"""WholeLines: a log stream that several processes write to without mixing their lines.

One write to a file is one piece. A pipe keeps only short writes together, so lines go there in pieces of whole lines.
"""

from __future__ import annotations

import io
import os
import select
import stat
from typing import Final

_PIPE_BYTES: Final = select.PIPE_BUF
"""Bytes that one write to a pipe keeps together, by POSIX."""
_FILE_BYTES: Final = 16 * 1024 * 1024


class WholeLines(io.RawIOBase):
    """Writes whole lines to a descriptor, in pieces that the kernel keeps together where a line is short enough."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._piece_bytes = _FILE_BYTES if is_file else _PIPE_BYTES

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write lines; returns when all are written. Raises OSError."""
        rest = memoryview(data)
        while rest:
            piece = bytes(rest[: self._piece_bytes])
            end = piece.rfind(b"\n") + 1 if len(rest) > self._piece_bytes else len(piece)
            rest = rest[os.write(self._descriptor, piece[:end] if end else piece) :]
        return len(data)
