"""Processes that share every step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.training.batches import MicroBatch
from engine.training.process_group import ProcessGroup


def batch(num_rows: int) -> MicroBatch:
    ids = torch.arange(3 * num_rows).view(num_rows, 3)
    return MicroBatch(ids, ids % 2 == 0)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_row_belongs_to_one_process(size: int) -> None:
    batches = [batch(5), batch(1)]
    shares = [ProcessGroup(rank=rank, size=size).share(batches) for rank in range(size)]
    rows = sorted(row for share in shares for part in share for row in part.ids.tolist())
    assert rows == sorted(row for whole in batches for row in whole.ids.tolist())
    assert all(part.ids.shape == part.is_target.shape for share in shares for part in share)
    assert all(len(part.ids) for share in shares for part in share)


def test_a_process_alone_needs_nobody(tmp_path: Path) -> None:
    alone, tensor = ProcessGroup(), torch.tensor([1.0, 2.0])
    alone.meet(tmp_path / "meeting")
    alone.sum([tensor])
    assert tensor.tolist() == [1.0, 2.0]
    assert alone.first(2.5) == 2.5
    assert not (tmp_path / "meeting").exists()
