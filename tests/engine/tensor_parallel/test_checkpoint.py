"""Shares of a checkpoint's tensors that together are the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.models.config.checkpoint import CheckpointError
from engine.models.config.published import PublishedQuantization
from engine.models.families.registry import read_model_config
from engine.quantization.packed_tensors import take_packed
from engine.tensor_parallel.checkpoint import PartCheckpoint
from tests.engine.models.checkpoints import make_reference, save_checkpoint

HEAD_DIM = 8


def save(folder: Path, variant: str, **changes: Any) -> Path:
    return save_checkpoint(make_reference(variant, num_hidden_layers=1, **changes), folder)


def parts(folder: Path, size: int = 2) -> list[PartCheckpoint]:
    config = read_model_config(folder)
    return [PartCheckpoint(folder, config, rank, size) for rank in range(size)]


def test_projections_are_cut_between_heads_and_inside_the_mlp(tmp_path: Path) -> None:
    reference = make_reference("llama_biased", num_hidden_layers=1, num_key_value_heads=2)
    whole = reference.state_dict()
    shares = parts(save_checkpoint(reference, tmp_path))
    layer = "model.layers.0"
    for name, shape, axis in (
        (f"{layer}.self_attn.q_proj.weight", (24, 48), 0),
        (f"{layer}.self_attn.k_proj.bias", (8,), 0),
        (f"{layer}.self_attn.o_proj.weight", (48, 24), 1),
        (f"{layer}.mlp.up_proj.bias", (40,), 0),
        (f"{layer}.mlp.down_proj.weight", (48, 40), 1),
    ):
        assert torch.equal(torch.cat([share.take(name, shape) for share in shares], axis), whole[name]), name
    for name, shape in ((f"{layer}.input_layernorm.weight", (48,)), ("model.embed_tokens.weight", (97, 48))):
        assert all(torch.equal(share.take(name, shape), whole[name]) for share in shares), name
    bias = f"{layer}.self_attn.o_proj.bias"
    assert torch.equal(shares[0].take(bias, (48,)) + shares[1].take(bias, (48,)), whole[bias])


def test_projections_stacked_in_one_tensor_are_cut_one_by_one(tmp_path: Path) -> None:
    reference = make_reference("phi3", num_hidden_layers=1)
    whole = reference.state_dict()
    shares = parts(save_checkpoint(reference, tmp_path))
    fused = whole["model.layers.0.self_attn.qkv_proj.weight"]
    queries, keys, values = fused.split([48, 16, 16])

    for rank, share in enumerate(shares):
        half = [part.chunk(2)[rank] for part in (queries, keys, values)]
        assert torch.equal(share.take("model.layers.0.self_attn.qkv_proj.weight", (40, 48)), torch.cat(half))
        gate, up = whole["model.layers.0.mlp.gate_up_proj.weight"].chunk(2)
        expected = torch.cat([gate.chunk(2)[rank], up.chunk(2)[rank]])
        assert torch.equal(share.take("model.layers.0.mlp.gate_up_proj.weight", (80, 48)), expected)


def test_tensors_of_all_experts_are_cut_inside_each_expert(tmp_path: Path) -> None:
    save(tmp_path, "qwen3_moe", decoder_sparse_step=1)
    prefix = "model.layers.0.mlp.experts"
    gate, up, down = torch.randn(8, 32, 48), torch.randn(8, 32, 48), torch.randn(8, 48, 32)
    stacked = {f"{prefix}.gate_up_proj": torch.cat((gate, up), 1), f"{prefix}.down_proj": down}
    save_file(stacked, tmp_path / "model.safetensors")

    for rank, share in enumerate(parts(tmp_path)):
        half = torch.cat((gate.chunk(2, 1)[rank], up.chunk(2, 1)[rank]), 1)
        assert torch.equal(share.take(f"{prefix}.gate_up_proj", (8, 32, 48)), half)
        assert torch.equal(share.take(f"{prefix}.down_proj", (8, 48, 16)), down.chunk(2, 2)[rank])


@pytest.mark.parametrize("method", ["gptq", "awq"])
@pytest.mark.parametrize(("module", "axis"), [("self_attn.q_proj", 0), ("mlp.down_proj", 1)])
def test_packed_projections_are_cut_between_groups(method: Any, module: str, axis: int, tmp_path: Path) -> None:
    save(tmp_path, "llama3", num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(2)
    num_in, num_out, prefix = 64, 32, f"model.layers.0.{module}"
    words = (num_in // 8, num_out) if method == "gptq" else (num_in, num_out // 8)
    tensors = {
        f"{prefix}.qweight": torch.randint(-(2**31), 2**31 - 1, words, dtype=torch.int32),
        f"{prefix}.qzeros": torch.randint(-(2**31), 2**31 - 1, (4, num_out // 8), dtype=torch.int32),
        f"{prefix}.scales": torch.rand(4, num_out).half(),
    }
    if method == "gptq":
        tensors[f"{prefix}.g_idx"] = (torch.arange(num_in) // 16).int()
    save_file(tensors, tmp_path / "model.safetensors")
    published = PublishedQuantization(method=method, bits=4, group_size=16, zero_offset=1 if method == "gptq" else 0)
    shape = (num_out // 2, num_in) if axis == 0 else (num_out, num_in // 2)

    found = [take_packed(share, prefix, shape, published).dequantize() for share in parts(tmp_path)]

    (whole,) = [take_packed(share, prefix, (num_out, num_in), published) for share in parts(tmp_path, 1)]
    assert torch.equal(torch.cat(found, axis), whole.dequantize())


def test_groups_in_any_order_are_refused(tmp_path: Path) -> None:
    save(tmp_path, "llama3", num_attention_heads=4, num_key_value_heads=2)
    name = "model.layers.0.mlp.down_proj.g_idx"
    save_file({name: torch.tensor([3, 0, 1, 2] * 8).int()}, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError, match="desc_act"):
        parts(tmp_path)[0].take_integers(name, (16,))


def test_weights_of_norms_are_cut_where_they_span_all_heads(tmp_path: Path) -> None:
    reference = make_reference("olmo2", num_hidden_layers=1)
    name = "model.layers.0.self_attn.q_norm.weight"
    shares = parts(save_checkpoint(reference, tmp_path))
    assert torch.equal(torch.cat([share.take(name, (24,)) for share in shares]), reference.state_dict()[name])
