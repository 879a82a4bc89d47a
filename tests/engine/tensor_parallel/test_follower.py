"""The follower mirrors the leader."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.tensor_parallel.test_leader import CONTEXT, pair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("qwen3", num_hidden_layers=1), tmp_path)


def test_the_follower_computes_the_step_that_the_leader_computes(folder: Path) -> None:
    with pair(folder) as two:
        two.leader.open_pool(8)
        hidden = two.leader.forward(torch.tensor([3, 4, 5]), CONTEXT, [])
        two.leader.logits(hidden[:2] + 1)
        for _ in range(3):
            two.follow()

        assert two.models[0].calls == two.models[1].calls
        assert two.models[0].calls[0] == [[3, 4, 5], [6, 0, 1], [22, 8, 9], [[1, 5], [2, 0]]]
