"""What each process gets: shares that together are the whole, and a reason where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import read_model_config
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.shard import Shard, part_of_config
from tests.engine.models.checkpoints import make_reference, save_checkpoint

HEAD_DIM = 8


def save(folder: Path, variant: str, **changes: Any) -> Path:
    return save_checkpoint(make_reference(variant, num_hidden_layers=1, **changes), folder)


@pytest.mark.parametrize(
    ("variant", "size", "message"),
    [
        ("llama2", 4, "4 does not divide num_attention_heads 6"),
        ("llama_biased", 2, "2 does not divide num_key_value_heads 3"),
        ("qwen2_moe", 6, "6 does not divide num_key_value_heads 2"),
    ],
)
def test_models_that_cannot_be_split_are_refused_with_the_reason(
    variant: str, size: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        part_of_config(read_model_config(save(tmp_path, variant)), size)


def test_experts_keep_their_number_and_lose_width(tmp_path: Path) -> None:
    config = part_of_config(read_model_config(save(tmp_path, "qwen2_moe", mlp_only_layers=[])), 2)

    experts = config.traits.experts
    assert experts is not None
    assert (experts.num_experts, experts.size, experts.shared_size) == (6, 16, 24)
    assert (config.num_heads, config.num_kv_heads, config.hidden_size, config.vocab_size) == (3, 1, 48, 97)


def test_a_vocabulary_that_does_not_divide_ends_in_rows_of_zeros() -> None:
    weight = torch.randn(7, 4)

    rows = [Shard(Group(rank, 3)).head_rows(weight) for rank in range(3)]

    assert torch.equal(torch.cat(rows)[:7], weight)
    assert not torch.cat(rows)[7:].any()
    assert [len(part) for part in rows] == [3, 3, 3]
