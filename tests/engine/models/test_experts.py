"""A mixture of experts weighs what the router picked, whatever else is in the step."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.models.experts import ExpertRouter
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row


def test_shares_are_those_of_all_experts_unless_normalized() -> None:
    inputs = torch.eye(2)
    weight = torch.tensor([[3.0, 0.0], [1.0, 2.0], [0.0, 1.0], [2.0, -1.0]])
    shares = (inputs @ weight.T).softmax(-1)

    plain, chosen = ExpertRouter(weight, 2, is_normalized=False).choose(inputs)
    normalized, _ = ExpertRouter(weight, 2, is_normalized=True).choose(inputs)

    assert chosen.tolist() == [[0, 3], [1, 2]]
    assert torch.allclose(plain, shares.gather(1, chosen))
    assert torch.allclose(normalized.sum(1), torch.ones(2))


def test_a_row_gets_the_same_logits_alone_and_beside_others(tmp_path: Path) -> None:
    directory = save_checkpoint(make_reference("qwen2_moe"), tmp_path)
    tokens = [[5, 9, 11, 40, 2], [7, 7, 61], [90, 1, 33, 18]]
    alone = [PagedRunner(directory).prefill(Row(list(row)), [8]) for row in tokens]

    together = PagedRunner(directory).step([(Row(list(row)), len(row)) for row in tokens])

    for one, other in zip(alone, together, strict=True):
        assert (one - other).abs().max() < 1e-4
