"""Checkpoints of random weights are such that both sides of a comparison load them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from loadtests.engine.random_checkpoint import Shape, write_checkpoint

SMALL = Shape(
    num_layers=2, hidden_size=48, intermediate_size=80, num_heads=6, num_kv_heads=2, vocab_size=600, max_positions=64
)


def test_transformers_loads_the_weights_and_the_tokenizer(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, SMALL, seed=1)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 600)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo"
    assert len(tokenizer) == SMALL.vocab_size


def test_the_default_shape_has_135_million_weights() -> None:
    sizes = (torch.Size(size).numel() for size in Shape().tensors().values())
    assert round(sum(sizes) / 1e6) == 135


def test_equal_seeds_give_equal_weights(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        write_checkpoint(tmp_path / name, SMALL, seed)
    one, same, other = (
        [file.read_bytes() for file in sorted((tmp_path / name).glob("*.safetensors"))]
        for name in ("one", "same", "other")
    )
    assert len(one) == SMALL.num_layers + 1
    assert one == same
    assert one != other
