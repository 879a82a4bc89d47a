"""Embeddings in another dtype than the model's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.embedding import TokenEmbedding

TABLE = torch.arange(12.0).view(4, 3) / 3


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [None, 2.5])
def test_rows_come_in_the_models_dtype_times_the_scale(stored: torch.dtype, scale: float | None) -> None:
    table = TABLE.to(stored)
    embedding = TokenEmbedding(table, torch.float32, scale)
    token_ids, out = torch.tensor([3, 0, 3]), torch.empty(3, 3)

    embedding.into(token_ids, out)

    assert torch.equal(out, table.float()[token_ids] * (scale or 1.0))
    assert torch.equal(embedding.of(token_ids.view(3, 1)), out.view(3, 1, 3))
    assert embedding.of(token_ids).dtype == torch.float32


def _mapped(folder: Path, numbers: torch.Tensor) -> tuple[torch.Tensor, Path]:
    """Numbers as a table that is mapped from a file, and the file."""
    path = folder / "table"
    path.write_bytes(numbers.numpy().tobytes())
    return torch.from_file(str(path), shared=False, size=numbers.numel()).view(numbers.shape), path


def _resident_bytes(path: Path) -> int:
    """Memory of this process that is mapped from a file."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    mapped = (line for line in lines if line.endswith(f" {path}"))
    return 1024 * sum(int(next(field for field in lines if field.startswith("Rss:")).split()[1]) for _ in mapped)


@pytest.mark.parametrize("scale", [None, 2.0])
def test_a_mapped_table_takes_little_memory_however_many_rows_are_read(tmp_path: Path, scale: float | None) -> None:
    num_rows = 8192
    numbers = torch.randn(num_rows, 1024, generator=torch.Generator().manual_seed(1))
    table, path = _mapped(tmp_path, numbers)
    embedding, out = TokenEmbedding(table, torch.float32, scale), torch.empty(64, 1024)

    for token_ids in torch.randperm(num_rows, generator=torch.Generator().manual_seed(2)).view(-1, 64).unbind():
        embedding.into(token_ids, out)
        assert torch.equal(out, numbers[token_ids] * (scale or 1.0))

    assert _resident_bytes(path) < 10 << 20  # of 32 MiB; the system maps 64 KiB around each row


def test_pages_of_a_mapped_table_that_others_read_are_released(tmp_path: Path) -> None:
    table, path = _mapped(tmp_path, torch.ones(8192, 1024))
    embedding, out = TokenEmbedding(table, torch.float32), torch.empty(512, 1024)
    assert float(table.sum()) == 8192 * 1024
    before = _resident_bytes(path)

    for _ in range(9):
        embedding.into(torch.arange(512), out)

    assert before > 16 << 20
    assert _resident_bytes(path) < 4 << 20
    assert float(table.sum()) == 8192 * 1024


def test_a_table_in_memory_stays_there() -> None:
    numbers = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
    embedding = TokenEmbedding(numbers.clone(), torch.float32)

    for _ in range(3):
        assert torch.equal(embedding.of(torch.arange(4096)), numbers)


def test_the_scale_is_rounded_to_the_models_dtype() -> None:
    assert TokenEmbedding(TABLE, torch.bfloat16, 25.298).scale == 25.25
    assert TokenEmbedding(TABLE, torch.float32).scale == 1.0
