"""Tables of numbers in files beside the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.gguf.number_file import mapped_numbers

NUMBERS = torch.arange(12, dtype=torch.float32).view(4, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_first_call_writes_and_later_ones_only_map(dtype: torch.dtype, tmp_path: Path) -> None:
    calls: list[int] = []

    def write(out: torch.Tensor) -> None:
        calls.append(out.numel())
        out.copy_(NUMBERS)

    for _ in range(2):
        found = mapped_numbers(tmp_path / "table", (4, 3), dtype, write)
        assert found is not None
        assert found.dtype == dtype
        assert torch.equal(found.float(), NUMBERS)
    assert calls == [12]
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def write_numbers(out: torch.Tensor) -> None:
    out.copy_(NUMBERS)


def test_a_cut_file_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"\0" * 5)

    found = mapped_numbers(tmp_path / "table", (4, 3), torch.float32, write_numbers)

    assert found is not None
    assert torch.equal(found, NUMBERS)


def test_a_folder_that_cannot_be_written_gives_none(tmp_path: Path) -> None:
    assert mapped_numbers(tmp_path / "absent" / "table", (4, 3), torch.float32, lambda out: None) is None


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def fail(out: torch.Tensor) -> None:
        raise OSError

    assert mapped_numbers(tmp_path / "table", (4, 3), torch.float32, fail) is None
    assert list(tmp_path.iterdir()) == []
