"""Memory on huge pages for tensors that every step reads.

Ten megabytes of weights span more 4 KiB pages than the TLB of a core holds. On pages of 2 MiB all translations fit.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path

import torch

_PAGE_BYTES = 2 << 20
_MADV_DONTNEED = 4
_REGION_BYTES = 16 << 20
"""Size of one region in bytes. The system backs a page with memory only when it is first written."""
_LINE_BYTES = 64


class HugePages:
    """Allocator that places tensors side by side on huge pages.

    A region lives as long as one of its tensors. Without huge pages it falls back to ordinary pages.
    """

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.uint8)

    def zeros(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a zeroed tensor whose data starts at a cache line."""
        num_bytes = prod(shape) * dtype.itemsize
        if self._room.numel() < num_bytes:
            self._room = _region(num_bytes)
        found = self._room[:num_bytes].view(dtype).view(shape)
        self._room = self._room[-(-num_bytes // _LINE_BYTES) * _LINE_BYTES :]
        return found

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous copy of a tensor."""
        return self.zeros(*tensor.shape, dtype=tensor.dtype).copy_(tensor)


def release_pages(tensor: torch.Tensor) -> None:
    """Give the pages that lie entirely in a tensor back to the system.

    The next access to a tensor that is mapped from a file reads the file again; such a tensor must not have been
    written. Any other tensor then reads as zeros. Where the system has no such call, the pages stay.
    """
    size = mmap.PAGESIZE
    start = -(-tensor.data_ptr() // size) * size
    end = (tensor.data_ptr() + tensor.numel() * tensor.itemsize) // size * size
    if end > start:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def is_of_file(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's memory is mapped from a file."""
    if tensor.device.type != "cpu" or not tensor.numel():
        return False
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_bytes().strip().split(b"\n"):
            addresses, *fields = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split(b"-"))
            if start <= tensor.data_ptr() < end:
                return len(fields) == 5 and fields[4].startswith(b"/")
    return False


def release_free_memory() -> None:
    """Give memory that the C library's allocator holds and nothing uses back to the system; glibc alone can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def release_library_pages() -> None:
    """Give the pages of code and constants in loaded libraries back to the system, which reads those that run again.

    The compiler of steps is 90 MB that serving does not use. A mapping that was never written equals its file; the
    linker writes some constants at the start, and those stay.
    """
    with suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        for start, end in _unwritten_mappings(Path("/proc/self/smaps").read_bytes()):
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _unwritten_mappings(smaps: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of all private mappings of files that were never written, by a process's `smaps`."""
    found, num_written = (0, 0), 0
    for line in smaps.split(b"\n"):
        name, *fields = line.split(maxsplit=5) or (b":",)
        if name in (b"Anonymous:", b"Swap:"):
            num_written += int(fields[0])
        elif name == b"VmFlags:" and found[1] and not num_written:
            yield found
        elif not name.endswith(b":"):
            is_library = fields[0] in (b"r-xp", b"r--p") and len(fields) == 5 and fields[4].startswith(b"/")
            start, end = (int(address, 16) for address in name.split(b"-"))
            found, num_written = (start, end) if is_library else (0, 0), 0


def _region(num_bytes: int) -> torch.Tensor:
    """Return a zeroed uint8 tensor of at least `num_bytes` bytes that starts at a page boundary."""
    num_pages = -(-max(num_bytes, _REGION_BYTES) // _PAGE_BYTES)
    memory = mmap.mmap(-1, (num_pages + 1) * _PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    found = torch.frombuffer(memory, dtype=torch.uint8)
    start = -found.data_ptr() % _PAGE_BYTES
    return found[start : start + num_pages * _PAGE_BYTES]
