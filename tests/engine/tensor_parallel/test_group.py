"""Collectives of a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.tensor_parallel.group import Group


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Group]:
    group = Group.join(0, 1, torch.device("cpu"), tmp_path / "a ? folder#1")
    yield group
    group.leave()


def test_a_group_of_one_leaves_tensors_as_they_are(alone: Group) -> None:
    tensor = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    before = tensor.clone()
    alone.sum(tensor)
    alone.send(tensor)
    assert torch.equal(tensor, before)
    assert torch.equal(alone.side_by_side(tensor), before)


def test_a_view_may_be_gathered(alone: Group) -> None:
    wide = torch.arange(12.0).view(3, 4)
    assert torch.equal(alone.side_by_side(wide[:, 1:3]), wide[:, 1:3])
