"""A whole model is what the only process of a group holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.families.registry import read_model_config
from engine.models.layers import RMSNorm
from engine.models.loading.split import Split, Unsplit
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.shard import Shard
from tests.engine.models.checkpoints import make_reference, save_checkpoint


class Alone(Group):
    """A group of one, whose sums are its own."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def sum(self, tensor: torch.Tensor) -> None:
        """Leave it."""


@pytest.mark.parametrize("split", [Unsplit(), Shard(Alone())], ids=["unsplit", "group of one"])
def test_config_tensors_and_vocabulary_are_those_of_the_checkpoint(split: Split, tmp_path: Path) -> None:
    reference = make_reference("llama2", num_hidden_layers=1)
    folder = save_checkpoint(reference, tmp_path)
    config = read_model_config(folder)
    assert split.config(config) == config
    checkpoint = split.checkpoint(folder, config)
    for name, tensor in reference.state_dict().items():
        assert torch.equal(checkpoint.take(name, tuple(tensor.shape)), tensor), name
    checkpoint.check_all_taken()
    head = reference.state_dict()["lm_head.weight"]
    assert torch.equal(split.head_rows(head), head)


@pytest.mark.parametrize("split", [Unsplit(), Shard(Alone())], ids=["unsplit", "group of one"])
def test_a_norm_over_all_heads_is_a_plain_norm(split: Split) -> None:
    rows, weight = torch.randn(3, 16), torch.randn(16)
    found = torch.empty(3, 16)
    split.norm_over_heads(weight, 1e-5, 0.0, RMSNorm).into(rows, found)
    assert torch.allclose(found, torch.nn.functional.rms_norm(rows, (16,), weight, 1e-5), atol=1e-5)
