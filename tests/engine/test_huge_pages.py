"""Memory on pages of two megabytes is like any other, but for the addresses that reading it takes."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine import huge_pages
from engine.huge_pages import HugePages, is_of_file

_MAPS = Path("/proc/self/smaps")
_WIDE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_tensors_are_zeros_of_the_shape_and_kind_that_were_requested() -> None:
    found = HugePages().zeros(3, 5, 2, dtype=torch.bfloat16)

    assert found.shape == (3, 5, 2)
    assert found.dtype == torch.bfloat16
    assert not found.any()


def test_tensors_share_no_memory_and_begin_with_a_line_each() -> None:
    pages = HugePages()

    found = [pages.zeros(size, dtype=torch.float32) for size in (1, 17, 1000, 3)]
    for number, tensor in enumerate(found, 1):
        tensor.fill_(number)

    assert [set(tensor.tolist()) for tensor in found] == [{1.0}, {2.0}, {3.0}, {4.0}]
    assert not any(tensor.data_ptr() % 64 for tensor in found)


def test_a_tensor_may_be_larger_than_what_is_called_of_the_system_at_once() -> None:
    pages = HugePages()
    small = pages.copy(torch.arange(5))

    large = pages.zeros((20 << 20) // 4 + 1, dtype=torch.float32)
    large[-1] = 7.0

    assert large.count_nonzero() == 1
    assert small.tolist() == [0, 1, 2, 3, 4]


def test_a_copy_has_the_same_numbers_side_by_side() -> None:
    original = torch.arange(24).view(4, 6).t()

    copy = HugePages().copy(original)

    assert copy.is_contiguous()
    assert torch.equal(copy, original)


def test_a_tensor_of_nothing_has_its_shape() -> None:
    assert HugePages().zeros(0, 4, dtype=torch.int64).shape == (0, 4)


@pytest.mark.skipif(not (_MAPS.exists() and _WIDE_PAGES.exists()), reason="this system does not tell of its pages")
def test_the_system_is_requested_wide_pages() -> None:
    tensor = HugePages().zeros(1 << 20, dtype=torch.float32)
    address = tensor.data_ptr()

    flags: list[str] = []
    is_here = False
    for line in _MAPS.read_text(encoding="ascii").splitlines():
        head, _, rest = line.partition(" ")
        start, _, end = head.partition("-")
        if end:
            is_here = int(start, 16) <= address < int(end, 16)
        elif head == "VmFlags:" and is_here:
            flags = rest.split()

    assert "hg" in flags


_AFTER_THE_START = """
import llvmlite.binding
import torch
import platform
import subprocess
import sys
from pathlib import Path
from engine.huge_pages import release_library_pages

def resident_of(library):
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    code = (line for line in lines if library in line and ("r-xp" in line or "r--p" in line))
    return sum(int(next(field for field in lines if field.startswith("Rss:")).split()[1]) for _ in code)

llvmlite.binding.initialize_native_target()
before = resident_of("libllvmlite"), resident_of("libtorch_cpu")
release_library_pages()
after = resident_of("libllvmlite"), resident_of("libtorch_cpu")
print(*before, *after, float((torch.ones(3, 3) @ torch.ones(3, 3)).sum()), llvmlite.binding.get_default_triple())
"""


@pytest.mark.skipif(not _MAPS.is_file(), reason="needs Linux")
def test_libraries_still_run_after_their_pages_were_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _AFTER_THE_START], capture_output=True, text=True, check=True)

    *sizes, product, triple = done.stdout.split()
    before, after = [int(size) for size in sizes[:2]], [int(size) for size in sizes[2:]]
    assert min(before) > 1000
    assert max(after) < 0.2 * min(before)
    assert (float(product), triple.split("-")[0]) == (27.0, platform.machine())


def test_only_pages_of_libraries_that_were_never_written_are_given_back() -> None:
    mappings = [
        ("r-xp", "/lib/code.so", 0, 0),
        ("r--p", "/lib/constants \x85\x0c.so", 0, 0),
        ("r--p", "/lib/relocated.so", 16, 0),
        ("r--p", "/lib/relocated_and_swapped_out.so", 0, 16),
        ("rw-p", "/lib/variables.so", 0, 0),
        ("r--p", "", 0, 0),
        ("r--p", "[vvar]", 0, 0),
    ]
    smaps = "".join(
        f"{index}000-{index}fff {access} 00000000 08:01 5 {path}\nRss: 8 kB\nAnonymous: {anonymous} kB\n"
        f"Swap: {swapped} kB\nSwapPss: 0 kB\nVmFlags: rd mr\n"
        for index, (access, path, anonymous, swapped) in enumerate(mappings, start=1)
    ).encode("latin-1")

    assert list(huge_pages._unwritten_mappings(smaps)) == [(0x1000, 0x1FFF), (0x2000, 0x2FFF)]


def test_a_file_of_any_name_is_known_as_one(tmp_path: Path) -> None:
    for name in (b"plain", b"a \x85\x0cb", b"lat\xe8n", b" (deleted)"):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            mapped = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.float32)
        assert is_of_file(mapped)
    assert not is_of_file(torch.zeros(1024))
    assert not is_of_file(torch.zeros(0))
