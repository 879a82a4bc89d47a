"""Small GGUF files that the tests write with the `gguf` library: whole models, and files damaged on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

Array = NDArray[Any]

ARCHS = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "olmo3": gguf.MODEL_ARCH.OLMO2,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "glm4": gguf.MODEL_ARCH.GLM4,
    "exaone4": gguf.MODEL_ARCH.EXAONE4,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
    "qwen3_5_text": gguf.MODEL_ARCH.QWEN35,
    "qwen3_5_moe_text": gguf.MODEL_ARCH.QWEN35MOE,
    "qwen3_next": gguf.MODEL_ARCH.QWEN3NEXT,
}
PERMUTED = (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.SMOLLM3, gguf.MODEL_ARCH.GRANITE)
"""Architectures whose query and key heads the converter interleaves."""
RECURRENT = (gguf.MODEL_ARCH.QWEN35, gguf.MODEL_ARCH.QWEN35MOE, gguf.MODEL_ARCH.QWEN3NEXT)
WINDOWED = ("gemma2", "gemma3_text", "phi3", "olmo3", "exaone4", "gpt_oss")
BYTE_TOKENS = ["<s>", "</s>", "a", "b", "ab"]


def write_model(
    path: Path,
    model: PreTrainedModel,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    only: str = "",
) -> Path:
    """Write a transformers model as llama.cpp's converter does: its names, its order of rows, its norms.

    Matrices whose rows are whole blocks are quantized to `kind`, the embedding not, and of the rest those with `only`
    in their names.
    """
    config = model.config
    arch = ARCHS[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    write_shape(writer, config)
    write_byte_level_vocabulary(writer, config.vocab_size)
    for name, numbers in _converted(model, arch):
        block_size, _ = gguf.GGML_QUANT_SIZES[kind]
        has_blocks = numbers.ndim > 1 and numbers.shape[-1] % block_size == 0 and not name.endswith(".bias")
        is_matrix = has_blocks and "token_embd" not in name and only in name
        if is_matrix and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)
    return close(writer, path)


def close(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Write everything to the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_byte_level_vocabulary(writer: gguf.GGUFWriter, num_tokens: int) -> None:
    """Write a vocabulary of made-up tokens with one merge."""
    tokens = BYTE_TOKENS + [f"token{index}" for index in range(len(BYTE_TOKENS), num_tokens)]
    control = int(gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control, control] + [int(gguf.TokenType.NORMAL)] * (num_tokens - 2))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(1)


def write_shape(writer: gguf.GGUFWriter, config: Any) -> None:
    """Write the metadata of a transformers config."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if hasattr(config, "intermediate_size"):
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _write_rope(writer, config, head_dim)
    if config.model_type in WINDOWED and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if config.model_type in ("gemma3_text", "olmo3", "exaone4"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if config.model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if ARCHS[config.model_type] in RECURRENT:
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
        if config.model_type != "qwen3_next":
            writer.add_rope_dimension_sections([1, 1, 0, 0])
        writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    if config.model_type in ("mixtral", "gpt_oss", "qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "qwen3_next"):
        is_qwen = config.model_type.startswith("qwen")
        writer.add_expert_count(config.num_experts if is_qwen else config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if config.model_type != "mixtral":
            size = config.moe_intermediate_size if is_qwen else config.intermediate_size
            writer.add_expert_feed_forward_length(size)
    if config.model_type in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _write_rope(writer: gguf.GGUFWriter, config: Any, head_dim: int) -> None:
    rope = config.rope_parameters
    if "full_attention" in rope:
        if config.model_type == "gemma3_text":
            writer.add_key_value(
                "gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"], gguf.GGUFValueType.FLOAT32
            )
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        original = config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)
        factor = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))


def _rope_tensors(config: Any) -> Iterator[tuple[str, Array]]:
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)
    if rope.get("rope_type") == "llama3":
        head_dim = config.hidden_size // config.num_attention_heads
        frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        share = np.clip((turns - low) / (high - low), 0, 1)
        yield "rope_freqs.weight", (1 / (share + (1 - share) / rope["factor"])).astype(np.float32)


def _converted(model: PreTrainedModel, arch: gguf.MODEL_ARCH) -> Iterator[tuple[str, Array]]:
    config = model.config
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    yield from _rope_tensors(config)
    for hf_name, tensor in model.state_dict().items():
        if hf_name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        numbers = tensor.float().numpy()
        module = hf_name.split(".")[-2]
        if arch in PERMUTED and module in heads:
            numbers = _permuted(numbers, heads[module])
        if arch in (gguf.MODEL_ARCH.GEMMA2, gguf.MODEL_ARCH.GEMMA3) and "norm" in module:
            numbers = numbers + 1
        if arch in RECURRENT:
            yield from _recurrent(hf_name, numbers, config, arch, names.get_name)
            continue
        yield from _named(hf_name, numbers, arch, names.get_name)


def _gpt_oss_experts(hf_name: str, numbers: Array) -> Iterator[tuple[str, Array]]:
    """Projections with outputs as rows, gate and up apart."""
    layer, name = hf_name.split(".")[2], hf_name.rpartition(".")[2]
    kind = "bias" if name.endswith("_bias") else "weight"
    if kind == "weight":
        numbers = numbers.swapaxes(1, 2)
    if name.startswith("down_proj"):
        yield f"blk.{layer}.ffn_down_exps.{kind}", np.ascontiguousarray(numbers)
        return
    for place, module in enumerate(("gate", "up")):
        yield f"blk.{layer}.ffn_{module}_exps.{kind}", np.ascontiguousarray(numbers[:, place::2])


def _named(
    hf_name: str, numbers: Array, arch: gguf.MODEL_ARCH, name_of: Callable[..., str | None]
) -> Iterator[tuple[str, Array]]:
    """The tensor under its GGUF name; transformers' joint gate and up projection of experts as two tensors."""
    layer = hf_name.split(".")[2] if ".layers." in hf_name else ""
    if arch == gguf.MODEL_ARCH.GPT_OSS and ".experts." in hf_name:
        yield from _gpt_oss_experts(hf_name, numbers)
        return
    if hf_name.endswith(".sinks"):
        yield f"blk.{layer}.attn_sinks.weight", numbers
        return
    if hf_name.endswith("experts.gate_up_proj"):
        gate, up = np.split(numbers, 2, axis=1)
        yield f"blk.{layer}.ffn_gate_exps.weight", np.ascontiguousarray(gate)
        yield f"blk.{layer}.ffn_up_exps.weight", np.ascontiguousarray(up)
        return
    if hf_name.endswith("experts.down_proj"):
        yield f"blk.{layer}.ffn_down_exps.weight", numbers
        return
    if hf_name.endswith("shared_expert_gate.weight"):
        numbers = numbers.reshape(-1)
    found = name_of(hf_name, try_suffixes=(".weight", ".bias"))
    assert found is not None, hf_name
    yield found, numbers


def _recurrent(
    hf_name: str, numbers: Array, config: Any, arch: gguf.MODEL_ARCH, name_of: Callable[..., str | None]
) -> Iterator[tuple[str, Array]]:
    """Tensors of families with gated delta-net layers: value heads tiled over the key heads but for Qwen3-Next."""
    kind = hf_name.rpartition("linear_attn.")[2] if "linear_attn." in hf_name else ""
    if not kind and hf_name.endswith("norm.weight"):
        numbers = numbers + 1
    if kind == "A_log":
        numbers = -np.exp(numbers)
    if kind == "conv1d.weight":
        numbers = numbers.squeeze(1)
    if kind == "in_proj_qkvz.weight":
        shared = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
        by_head = numbers.reshape(config.linear_num_key_heads, -1, numbers.shape[1])
        borders = np.cumsum([config.linear_key_head_dim, config.linear_key_head_dim, shared])
        parts = [part.reshape(-1, numbers.shape[1]) for part in np.split(by_head, borders, axis=1)]
        layer = hf_name.split(".")[2]
        yield f"blk.{layer}.attn_qkv.weight", np.concatenate(parts[:3])
        yield f"blk.{layer}.attn_gate.weight", np.ascontiguousarray(parts[3])
        return
    if kind and arch != gguf.MODEL_ARCH.QWEN3NEXT and kind != "norm.weight":
        numbers = _tiled(kind, numbers, config)
    renamed = hf_name.replace(".dt_bias", ".dt_proj.bias")
    yield from _named(renamed, np.ascontiguousarray(numbers), arch, name_of)


def _tiled(kind: str, numbers: Array, config: Any) -> Array:
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    if kind == "out_proj.weight":
        return _tiled("in_proj_z.weight", numbers.T, config).T
    start = 2 * keys * config.linear_key_head_dim if kind in ("in_proj_qkv.weight", "conv1d.weight") else 0
    heads = numbers[start:].reshape(keys, values // keys, -1, *numbers.shape[1:])
    return np.concatenate((numbers[:start], heads.swapaxes(0, 1).reshape(numbers[start:].shape)))


def _permuted(numbers: Array, num_heads: int) -> Array:
    halves = numbers.reshape(num_heads, 2, -1, *numbers.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(numbers.shape))


def random_blocks(kind: gguf.GGMLQuantizationType, num_rows: int, row_size: int, seed: int = 0) -> torch.Tensor:
    """Bytes [rows, bytes] of random blocks whose float16 fields are finite."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (num_rows * row_size // block_size, block_bytes), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.MXFP4:
        blocks[:, 0] = rng.integers(100, 140, len(blocks))
        return torch.from_numpy(blocks.reshape(num_rows, -1))
    for start in HALVES.get(kind.name, (0,)):
        blocks[:, start : start + 2] = rng.normal(0, 0.1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return torch.from_numpy(blocks.reshape(num_rows, -1))


HALVES = {
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
}
"""Places of the float16 fields in a block where it is not the first two bytes alone."""
