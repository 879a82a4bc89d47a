"""Numbers of a quantized table in a file beside the model, so that reading a few rows takes a few pages of memory."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

Write = Callable[[torch.Tensor], None]
"""Writes all numbers to a tensor of the table's shape and dtype."""


def mapped_numbers(path: Path, shape: tuple[int, ...], dtype: torch.dtype, write: Write) -> torch.Tensor | None:
    """Return a table that is mapped from a file; the first call makes the file.

    The file is renamed into place when it is complete. Of two processes that make the same one, either may win.

    Args:
        path: The file. Its folder must belong to this content of the model: an existing file is not compared with it.
        shape: Shape of the table.
        dtype: Dtype of the numbers.
        write: Writer of the numbers.

    Returns:
        The table, which must not be written; None if the folder has no room or cannot be written.
    """
    num_bytes = prod(shape) * dtype.itemsize
    try:
        if not path.is_file() or path.stat().st_size != num_bytes:
            _make(path, shape, dtype, write)
        return _map(str(path), shape, dtype, is_written=False)
    except OSError as error:
        logger.warning("%s: cannot be written or mapped (%s); its numbers are kept in memory", path, error)
        return None


def _make(path: Path, shape: tuple[int, ...], dtype: torch.dtype, write: Write) -> None:
    """Write the file under another name and rename it. Raises OSError."""
    number, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        # Room is reserved first: a full disk would otherwise end the process at a write to the mapped memory.
        os.posix_fallocate(number, 0, max(prod(shape) * dtype.itemsize, 1))
        write(_map(draft, shape, dtype, is_written=True))
        os.rename(draft, path)
    finally:
        os.close(number)
        Path(draft).unlink(missing_ok=True)


def _map(path: str, shape: tuple[int, ...], dtype: torch.dtype, *, is_written: bool) -> torch.Tensor:
    """Map a file. Raises OSError."""
    try:
        return torch.from_file(path, shared=is_written, size=prod(shape), dtype=dtype).view(shape)
    except RuntimeError as error:  # torch's error where the system refuses
        raise OSError(str(error)) from error
