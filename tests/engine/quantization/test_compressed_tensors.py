"""compressed-tensors and fp8 checkpoints, written here by hand, give the model of the dequantized weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import read_model_config
from engine.quantization.compressed_tensors import take_compressed
from engine.tensor_parallel.checkpoint import PartCheckpoint
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
PROMPT = [3, 14, 15, 92, 65, 35]
PROJECTION = re.compile(r"(_proj|in_proj_qkv|in_proj_z|in_proj_qkvz)\.weight$")
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
Tensors = dict[str, torch.Tensor]
Quantize = Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]
"""Function from a weight to its tensors by the end of their names, and the weight they stand for."""


def pack_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """int64 [rows, columns] → int32 [rows, words], the first code of a word in the lowest bits."""
    per_word = 32 // bits
    words = torch.zeros(codes.shape[0], codes.shape[1] // per_word, dtype=torch.int64)
    for place in range(per_word):
        words |= codes[:, place::per_word] << (bits * place)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def packed(bits: int, size: int | None, *, is_symmetric: bool = True, is_reordered: bool = False) -> Quantize:
    def quantize(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        num_out, num_in = weight.shape
        width = size or num_in
        top, middle = (1 << bits) - 1, 1 << (bits - 1)
        group_of = torch.arange(num_in) // width
        if is_reordered:
            group_of = group_of[torch.randperm(num_in, generator=torch.Generator().manual_seed(num_in))]
        scales, zeros = torch.empty(num_out, num_in // width), torch.full((num_out, num_in // width), middle)
        for group in range(num_in // width):
            part = weight[:, group_of == group]
            if is_symmetric:
                scales[:, group] = 2 * part.abs().amax(1) / top
            else:
                scales[:, group] = (part.amax(1) - part.amin(1)) / top
                zeros[:, group] = (-part.amin(1) / scales[:, group]).round().clamp(0, top).long()
        scales = scales.bfloat16().float()
        codes = (weight / scales[:, group_of] + zeros[:, group_of]).round().clamp(0, top).long()
        tensors = {
            "weight_packed": pack_words(codes, bits),
            "weight_scale": scales.bfloat16(),
            "weight_shape": torch.tensor([num_out, num_in]),
        }
        if not is_symmetric:
            tensors["weight_zero_point"] = pack_words(zeros.t().contiguous(), bits).t().contiguous()
        if is_reordered:
            tensors["weight_g_idx"] = group_of.to(torch.int32)
        return tensors, (codes - zeros[:, group_of]) * scales[:, group_of]

    return quantize


def int8(*, is_scalar: bool = False) -> Quantize:
    def quantize(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scales = weight.abs().amax(1, keepdim=True) / 127
        if is_scalar:
            scales = scales.amax().view(1)
        codes = (weight / scales).round().clamp(-127, 127)
        return {"weight": codes.to(torch.int8), "weight_scale": scales}, codes * scales

    return quantize


def float8(*, span: str = "channel", suffix: str = "weight_scale") -> Quantize:
    def quantize(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        if span == "block":
            rows, columns = -(-weight.shape[0] // 32), -(-weight.shape[1] // 48)
            scales = torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)) + 0.01
            wide = scales.repeat_interleave(32, 0)[: weight.shape[0]].repeat_interleave(48, 1)[:, : weight.shape[1]]
        else:
            scales = wide = weight.abs().amax(1, keepdim=True) / 448
            if span == "tensor":
                scales = wide = scales.amax().view(1)
        codes = (weight / wide).to(torch.float8_e4m3fn)
        return {"weight": codes, suffix: scales}, codes.float() * wide

    return quantize


def mxfp4(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    groups = weight.view(weight.shape[0], -1, 32)
    exponents = (groups.abs().amax(2) / 6).log2().ceil()
    scaled = groups / torch.exp2(exponents).unsqueeze(2)
    codes = (scaled.abs().unsqueeze(3) - E2M1).abs().argmin(3)
    restored = E2M1[codes] * scaled.sign() * torch.exp2(exponents).unsqueeze(2)
    signed = (codes + 8 * (scaled < 0)).flatten(1)
    tensors = {
        "weight_packed": (signed[:, ::2] | signed[:, 1::2] << 4).to(torch.uint8),
        "weight_scale": (exponents + 127).to(torch.uint8),
    }
    return tensors, restored.flatten(1)


def settings(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
        "sparsity_config": {},
    }


@dataclass(frozen=True)
class Form:
    """A published format: its settings, how a weight is stored, and how far rounded activations may lead."""

    settings: dict[str, Any]
    quantize: Quantize
    tolerance: float = 0.02


TOKEN = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
CHANNEL = {"num_bits": 8, "type": "int", "strategy": "channel"}
FLOAT = {"num_bits": 8, "type": "float", "strategy": "channel"}
BLOCK = {**FLOAT, "strategy": "block", "block_structure": [32, 48]}
FORMS = {
    "int4 groups": Form(settings("pack-quantized", INT4), packed(4, 32)),
    "int4 with zeros": Form(
        settings("pack-quantized", {**INT4, "symmetric": False}), packed(4, 32, is_symmetric=False)
    ),
    "int4 reordered": Form(settings("pack-quantized", INT4), packed(4, 32, is_reordered=True)),
    "int4 channels": Form(settings("pack-quantized", {**CHANNEL, "num_bits": 4}), packed(4, None)),
    "int8 packed channels": Form(settings("pack-quantized", CHANNEL), packed(8, None)),
    "int8 packed groups": Form(settings("pack-quantized", {**INT4, "num_bits": 8}), packed(8, 32)),
    "w8a16": Form(settings("int-quantized", CHANNEL), int8()),
    "w8a8": Form(settings("int-quantized", CHANNEL, TOKEN), int8(), 0.05),
    "w8a8 of one scale": Form(
        settings("int-quantized", {**CHANNEL, "strategy": "tensor"}, TOKEN), int8(is_scalar=True), 0.05
    ),
    "fp8 channels": Form(settings("float-quantized", FLOAT), float8(), 1e-4),
    "fp8 tensor": Form(settings("float-quantized", {**FLOAT, "strategy": "tensor"}), float8(span="tensor"), 1e-4),
    "fp8 blocks": Form(settings("float-quantized", BLOCK), float8(span="block"), 1e-4),
    "fp8": Form(
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 48]},
        float8(span="block", suffix="weight_scale_inv"),
        1e-4,
    ),
    "fp8 of one scale": Form(
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        float8(span="tensor"),
        1e-4,
    ),
    "fp8 of a scale each output": Form(
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
        float8(),
        1e-4,
    ),
    "mxfp4": Form(
        settings("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}), mxfp4
    ),
}


def write_pair(folder: Path, form: Form, variant: str = "qwen3") -> tuple[Path, Path]:
    """A quantized checkpoint, and the plain one of the numbers it stands for."""
    plain, quantized = folder / "plain", folder / "quantized"
    changes = {**SIZES, "vocab_size": 96, "head_dim": 16}
    if variant in ("qwen3_moe", "qwen3_5_moe", "qwen3_next"):
        changes["moe_intermediate_size"] = 64
    if variant.startswith(("qwen3_5", "qwen3_next")):
        changes |= {"linear_num_value_heads": 4, "linear_value_head_dim": 16}
    if variant in ("qwen3_5_moe", "qwen3_next"):
        changes["shared_expert_intermediate_size"] = 64
    save_checkpoint(make_reference(variant, **changes), plain)
    save_checkpoint(make_reference(variant, **changes), quantized)
    tensors = load_file(plain / "model.safetensors")
    others = {name: tensor.clone() for name, tensor in tensors.items() if not PROJECTION.search(name)}
    for name in sorted(tensors):
        if PROJECTION.search(name):
            parts, restored = form.quantize(tensors[name])
            others |= {f"{name.removesuffix('.weight')}.{kind}": part for kind, part in parts.items()}
            tensors[name] = restored.contiguous()
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(others, quantized / "model.safetensors", metadata={"format": "pt"})
    set_settings(quantized, form.settings)
    return quantized, plain


def set_settings(folder: Path, values: dict[str, Any]) -> None:
    set_config(folder, quantization_config=values)


def set_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def change_tensors(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def difference(quantized: Path, plain: Path, num_rows: list[int]) -> float:
    result = PagedRunner(quantized).prefill(Row(list(PROMPT)), num_rows)
    expected = PagedRunner(plain).prefill(Row(list(PROMPT)), num_rows)
    return float((result - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", FORMS)
def test_a_quantized_checkpoint_is_the_model_of_its_dequantized_weights(name: str, tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path, FORMS[name])

    assert difference(quantized, plain, [8]) < FORMS[name].tolerance
    assert difference(quantized, plain, [1]) < FORMS[name].tolerance


@pytest.mark.parametrize("name", ["int4 groups", "w8a16", "fp8 channels", "mxfp4"])
@pytest.mark.parametrize("variant", ["phi3", "qwen3_moe", "qwen2", "glm4"])
def test_fused_projections_biases_and_experts_may_be_quantized(name: str, variant: str, tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path, FORMS[name], variant)

    assert difference(quantized, plain, [8]) < FORMS[name].tolerance


@pytest.mark.parametrize("name", ["int4 groups", "int4 reordered", "w8a16", "fp8", "fp8 channels", "mxfp4"])
@pytest.mark.parametrize("variant", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_queries_with_a_gate_and_recurrent_layers_may_be_quantized(name: str, variant: str, tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path, FORMS[name], variant)

    assert difference(quantized, plain, [8]) < max(FORMS[name].tolerance, 0.08)


_FP8_BY_TENSOR: dict[str, Any] = {
    "actorder": None,
    "block_structure": None,
    "dynamic": False,
    "group_size": None,
    "num_bits": 8,
    "observer": "minmax",
    "observer_kwargs": {},
    "strategy": "tensor",
    "symmetric": True,
    "type": "float",
}
# The settings of a published checkpoint, with all the keys that its exporter writes.
PUBLISHED_FP8: dict[str, Any] = {
    "config_groups": {
        "group_0": {
            "input_activations": _FP8_BY_TENSOR,
            "output_activations": None,
            "targets": ["Linear"],
            "weights": _FP8_BY_TENSOR,
        }
    },
    "format": "float-quantized",
    "global_compression_ratio": 1.24,
    "ignore": ["lm_head", "re:.*layers.0.mlp.down_proj"],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "strategy": "tensor", "symmetric": True, "type": "float"},
    "quant_method": "compressed-tensors",
    "quantization_status": "frozen",
    "sparsity_config": {"format": "dense", "global_sparsity": 0.14, "ignore": [], "registry_requires_subclass": False},
    "transform_config": {},
    "version": "0.11.0",
}


def test_the_keys_of_a_published_checkpoint_are_read(tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path, FORMS["fp8 tensor"])
    set_settings(quantized, PUBLISHED_FP8)
    name = "model.layers.0.mlp.down_proj"
    whole = load_file(plain / "model.safetensors")[f"{name}.weight"]

    def leave_out(tensors: Tensors) -> None:
        del tensors[f"{name}.weight_scale"]
        tensors[f"{name}.weight"] = whole.clone()

    change_tensors(quantized, leave_out)

    assert difference(quantized, plain, [8]) < 1e-4


@pytest.mark.parametrize("name", ["lm_head", "model.embed_tokens"])
def test_a_quantized_vocabulary_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    quantized, _ = write_pair(tmp_path, FORMS["fp8 channels"])
    set_config(quantized, tie_word_embeddings=False)

    def quantize(tensors: Tensors) -> None:
        table = tensors["model.embed_tokens.weight"].clone()
        tensors.setdefault("lm_head.weight", table)
        tensors[f"{name}.weight"] = table.to(torch.float8_e4m3fn)
        tensors[f"{name}.weight_scale"] = torch.ones(table.shape[0], 1)

    change_tensors(quantized, quantize)

    with pytest.raises(CheckpointError, match=rf"{name}\.weight: is packed.*leave it out of the quantization"):
        PagedRunner(quantized)


def test_fixed_scales_of_activations_and_of_the_kv_pool_are_not_needed(tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path, FORMS["fp8 tensor"])

    def add_scales(tensors: Tensors) -> None:
        tensors["model.layers.1.mlp.down_proj.input_scale"] = torch.ones(1)
        for name in ("k_scale", "v_scale", "q_scale", "kv_scale", "k_proj.k_scale", "v_proj.v_scale"):
            tensors[f"model.layers.1.self_attn.{name}"] = torch.ones(1)
        tensors["model.layers.1.self_attn.k_proj.output_scale"] = torch.ones(1)

    change_tensors(quantized, add_scales)

    assert difference(quantized, plain, [8]) < 1e-4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: s.update(format="nvfp4-pack-quantized"), "format: 'nvfp4-pack-quantized' is not supported"),
        (lambda s: s.update(quantization_status="calibration"), "quantization_status: 'calibration'"),
        (lambda s: s.update(sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config: is not supported"),
        (lambda s: s.update(transform_config={"config_groups": {"u": {}}}), "transform_config: is not supported"),
        (lambda s: s.update(config_groups={}), "config_groups: expected an object of at least one group"),
        (lambda s: s["config_groups"].update(group_1={}), "config_groups.group_1: has no settings of weights"),
        (lambda s: s["config_groups"]["group_0"]["weights"].update(num_bits=3), "weights.num_bits: expected 4 or 8"),
        (lambda s: s["config_groups"]["group_0"]["weights"].update(type="float"), "weights.type: expected 'int'"),
        (lambda s: s["config_groups"]["group_0"]["weights"].update(strategy="token"), "weights.strategy: 'token'"),
        (lambda s: s["config_groups"]["group_0"]["weights"].update(group_size=0), "weights.group_size"),
        (lambda s: s["config_groups"]["group_0"].update(output_activations=TOKEN), "output_activations"),
        (
            lambda s: s["config_groups"].update(
                group_1={"weights": {**INT4, "group_size": 64}, "targets": ["re:.*down_proj"]}
            ),
            "config_groups: groups with different bits or spans",
        ),
    ],
)
def test_settings_that_are_not_supported_are_refused_by_name(
    change: Callable[[dict[str, Any]], None], named: str, tmp_path: Path
) -> None:
    save_checkpoint(make_reference("qwen3"), tmp_path)
    values = json.loads(json.dumps(FORMS["int4 groups"].settings))
    change(values)
    set_settings(tmp_path, values)

    with pytest.raises(ModelConfigError, match=re.escape(named).replace(re.escape(": "), ": ")):
        read_model_config(tmp_path)


DOWN = "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("int4 groups", lambda t: t.pop(f"{DOWN}.weight_scale"), rf"missing tensor {DOWN}\.weight_scale"),
        ("int4 groups", lambda t: t.update({f"{DOWN}.weight_packed": torch.zeros(64, 8, dtype=torch.int32)}), "shape"),
        ("w8a16", lambda t: t.update({f"{DOWN}.weight": torch.zeros(64, 128)}), "expected int8 or float8_e4m3fn"),
        ("w8a16", lambda t: t.update({f"{DOWN}.weight_scale": torch.zeros(7, 1)}), r"weight_scale: expected shape"),
        ("fp8 blocks", lambda t: t.update({f"{DOWN}.weight_scale": torch.ones(5, 5)}), r"weight_scale: expected shape"),
        ("mxfp4", lambda t: t.update({f"{DOWN}.weight_global_scale": torch.ones(1)}), "NVFP4"),
    ],
)
def test_missing_and_misshapen_parts_are_named(
    name: str, change: Callable[[Tensors], object], named: str, tmp_path: Path
) -> None:
    quantized, _ = write_pair(tmp_path, FORMS[name])
    change_tensors(quantized, change)

    with pytest.raises(CheckpointError, match=named):
        PagedRunner(quantized)


@pytest.mark.parametrize("name", ["int4 groups", "w8a8", "fp8 channels", "mxfp4"])
def test_parts_of_a_projection_are_those_of_the_whole_one(name: str, tmp_path: Path) -> None:
    quantized, _ = write_pair(tmp_path, FORMS[name])
    config = read_model_config(quantized)
    assert config.published is not None
    parts = [PartCheckpoint(quantized, config, rank, 2) for rank in range(2)]
    for prefix, shape, axis in ((DOWN, (64, 64), 1), ("model.layers.1.mlp.up_proj", (64, 64), 0)):
        whole_shape = (64, 128) if axis else (128, 64)
        whole = take_compressed(PartCheckpoint(quantized, config, 0, 1), prefix, whole_shape, config.published)
        found = [take_compressed(part, prefix, shape, config.published).dequantize() for part in parts]

        assert torch.equal(torch.cat(found, axis), whole.dequantize())


def test_blocks_that_cannot_be_split_are_named(tmp_path: Path) -> None:
    quantized, _ = write_pair(tmp_path, FORMS["fp8 blocks"])
    config = read_model_config(quantized)
    assert config.published is not None

    with pytest.raises(CheckpointError, match="blocks of 32 x 48 cannot be split"):
        take_compressed(PartCheckpoint(quantized, config, 0, 2), DOWN, (64, 64), config.published)
