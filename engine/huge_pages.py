"""Memory for what every step reads, on pages of two megabytes: ten megabytes of weights on pages of four kilobytes are
more addresses than a core remembers, and it looks them up again in every step."""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod

import torch

_PAGE_BYTES = 2 << 20
_REGION_BYTES = 16 << 20
"""Asked for at once; nothing of it is there before it is written to."""
_LINE_BYTES = 64


class HugePages:
    """Room for tensors side by side, as long as one of them lives. Where the system has no wide pages or none is left,
    it is like any other."""

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.uint8)

    def zeros(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor that begins with a line of the processor's caches."""
        num_bytes = prod(shape) * dtype.itemsize
        if self._room.numel() < num_bytes:
            self._room = _region(num_bytes)
        found = self._room[:num_bytes].view(dtype).view(shape)
        self._room = self._room[-(-num_bytes // _LINE_BYTES) * _LINE_BYTES :]
        return found

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor's numbers, contiguous."""
        return self.zeros(*tensor.shape, dtype=tensor.dtype).copy_(tensor)


def _region(num_bytes: int) -> torch.Tensor:
    """Zeros from the beginning of a page on; bytes."""
    num_pages = -(-max(num_bytes, _REGION_BYTES) // _PAGE_BYTES)
    memory = mmap.mmap(-1, (num_pages + 1) * _PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    found = torch.frombuffer(memory, dtype=torch.uint8)
    start = -found.data_ptr() % _PAGE_BYTES
    return found[start : start + num_pages * _PAGE_BYTES]
