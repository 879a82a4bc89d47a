"""AWQ and GPTQ checkpoints, packed here by hand from known codes, give the model of the dequantized weights."""

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
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
_EXPERT_SIZES = {
    "qwen2_moe": {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {"moe_intermediate_size": 64},
}
_PACKABLE = re.compile(r"(_proj|\.w[123])\.weight$")
PROMPT = [3, 14, 15, 92, 65, 35]


@dataclass(frozen=True)
class Packing:
    """How one kind of checkpoint stores a projection."""

    settings: dict[str, Any]
    bits: int
    group_size: int
    is_reordered: bool = False
    is_symmetric: bool = False

    @property
    def stored_zero_offset(self) -> int:
        """What the format subtracts from zeros before it packs them."""
        is_first_gptq = self.settings["quant_method"] == "gptq" and self.settings.get("checkpoint_format") != "gptq_v2"
        return 1 if is_first_gptq else 0


def gptq(bits: int, group_size: int, *, form: str = "gptq", desc_act: bool = False, sym: bool = False) -> Packing:
    settings = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group_size,
        "desc_act": desc_act,
        "sym": sym,
        "checkpoint_format": form,
    }
    return Packing(settings, bits, group_size, desc_act, sym)


AWQ = Packing({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}, 4, 32)
PACKINGS = {
    "awq": AWQ,
    "gptq": gptq(4, 32),
    "gptq v2": gptq(4, 32, form="gptq_v2"),
    "gptq symmetric": gptq(4, 64, sym=True),
    "gptq reordered": gptq(4, 32, desc_act=True),
    "gptq 8 bits": gptq(8, 32),
    "gptq 8 bits reordered": gptq(8, 32, desc_act=True),
    "gptq one group": gptq(4, -1),
}


def pack(codes: torch.Tensor, bits: int, order: tuple[int, ...]) -> torch.Tensor:
    """int64 [rows, columns] → int32 [rows, words]: nibble i of a word is column order[i]."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // len(order), dtype=torch.int64)
    for place, column in enumerate(order):
        words |= codes[:, column :: len(order)] << (bits * place)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def quantize(weight: torch.Tensor, packing: Packing, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The tensors of a projection (without prefix), and the weight [out, in] they stand for."""
    num_out, num_in = weight.shape
    size = num_in if packing.group_size == -1 else packing.group_size
    num_groups, top = num_in // size, (1 << packing.bits) - 1
    group_of_input = torch.arange(num_in) // size
    if packing.is_reordered:
        group_of_input = group_of_input[torch.randperm(num_in, generator=torch.Generator().manual_seed(seed))]
    scales = torch.empty(num_groups, num_out)
    zeros = torch.empty(num_groups, num_out, dtype=torch.int64)
    for group in range(num_groups):
        part = weight[:, group_of_input == group]
        low, high = part.amin(1), part.amax(1)
        if packing.is_symmetric:
            scales[group], zeros[group] = 2 * part.abs().amax(1) / top, (top + 1) // 2
        else:
            scales[group] = (high - low) / top
            zeros[group] = (-low / scales[group]).round().clamp(0, top).long()
    scales = scales.half().float()
    codes = (weight.t() / scales[group_of_input] + zeros[group_of_input]).round().clamp(0, top).long()
    restored = ((codes - zeros[group_of_input]) * scales[group_of_input]).t()
    per_word = 32 // packing.bits
    stored_zeros = (zeros - packing.stored_zero_offset) & top
    if packing.settings["quant_method"] == "awq":
        qweight, qzeros = pack(codes, 4, _AWQ_ORDER), pack(stored_zeros, 4, _AWQ_ORDER)
        return {"qweight": qweight, "qzeros": qzeros, "scales": scales.half()}, restored
    order = tuple(range(per_word))
    tensors = {
        "qweight": pack(codes.t(), packing.bits, order).t().contiguous(),
        "qzeros": pack(stored_zeros, packing.bits, order),
        "scales": scales.half(),
        "g_idx": group_of_input.to(torch.int32),
        "bias": torch.zeros(num_out, dtype=torch.float16),
    }
    return tensors, restored


def write_pair(folder: Path, packing: Packing, variant: str = "qwen3") -> tuple[Path, Path]:
    """A packed checkpoint, and the plain one of the numbers it stands for."""
    plain, packed = folder / "plain", folder / "packed"
    changes = {**_SIZES, "vocab_size": 96, "head_dim": 16, **_EXPERT_SIZES.get(variant, {})}
    save_checkpoint(make_reference(variant, **changes), plain)
    save_checkpoint(make_reference(variant, **changes), packed)
    tensors = load_file(plain / "model.safetensors")
    packed_tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    for seed, name in enumerate(sorted(tensors)):
        if _PACKABLE.search(name):
            parts, restored = quantize(tensors[name], packing, seed)
            del packed_tensors[name]
            prefix = name.removesuffix(".weight")
            has_bias = f"{prefix}.bias" in tensors
            packed_tensors |= {
                f"{prefix}.{key}": part for key, part in parts.items() if not (key == "bias" and has_bias)
            }
            tensors[name] = restored.contiguous()
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(packed_tensors, packed / "model.safetensors", metadata={"format": "pt"})
    set_settings(packed, packing.settings)
    return packed, plain


def set_settings(folder: Path, settings: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))


def assert_same_logits(packed: Path, plain: Path, num_rows: list[int]) -> None:
    result = PagedRunner(packed).prefill(Row(list(PROMPT)), num_rows)
    expected = PagedRunner(plain).prefill(Row(list(PROMPT)), num_rows)
    assert float((result - expected).norm() / expected.norm()) < 0.03


@pytest.mark.parametrize("name", PACKINGS)
def test_a_packed_checkpoint_is_the_model_of_its_dequantized_weights(name: str, tmp_path: Path) -> None:
    packed, plain = write_pair(tmp_path, PACKINGS[name])

    assert_same_logits(packed, plain, [8])
    assert_same_logits(packed, plain, [1])


@pytest.mark.parametrize("name", ["awq", "gptq reordered"])
def test_biases_of_packed_projections_are_stored(name: str, tmp_path: Path) -> None:
    packed, plain = write_pair(tmp_path, PACKINGS[name], variant="qwen2")

    assert_same_logits(packed, plain, [8])


@pytest.mark.parametrize("dynamic", [None, {}, {"-:.*lm_head": {}, "-:.*gate$": {}}])
def test_settings_that_only_leave_modules_out_are_read(dynamic: object, tmp_path: Path) -> None:
    packed, plain = write_pair(tmp_path, PACKINGS["gptq"])
    set_settings(packed, {**PACKINGS["gptq"].settings, "dynamic": dynamic, "lm_head": False, "meta": {"mse": 0.0}})

    assert_same_logits(packed, plain, [8])


def test_the_wrong_convention_for_zeros_would_be_noticed(tmp_path: Path) -> None:
    packed, plain = write_pair(tmp_path, PACKINGS["gptq"])
    set_settings(packed, PACKINGS["gptq v2"].settings)

    with pytest.raises(AssertionError):
        assert_same_logits(packed, plain, [8])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: s.update(quant_method="bitsandbytes"), "quantization_config.quant_method: 'bitsandbytes'"),
        (lambda s: s.update(version="gemv"), "quantization_config.version: 'gemv'"),
        (lambda s: s.update(bits=3), "quantization_config.bits: 3"),
        (lambda s: s.update(group_size=-2), "quantization_config.group_size"),
        (lambda s: s.update(zero_point=False), "quantization_config.zero_point"),
        (lambda s: s.update(quant_method="gptq", checkpoint_format="marlin"), "checkpoint_format: 'marlin'"),
        (lambda s: s.update(quant_method="gptq", dynamic={"+:.*down": {"bits": 8}}), "dynamic: settings that differ"),
        (lambda s: s.update(quant_method="gptq", dynamic={"-:.*up": {}, ".*down": {}}), "dynamic: settings that"),
    ],
)
def test_kinds_that_cannot_be_read_are_refused_by_name(
    change: Callable[[dict[str, Any]], None], named: str, tmp_path: Path
) -> None:
    packed, _ = write_pair(tmp_path, AWQ)
    settings = dict(AWQ.settings)
    change(settings)
    set_settings(packed, settings)

    with pytest.raises(ModelConfigError, match=named):
        PagedRunner(packed)


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_and_misshapen_parts_are_named(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.down_proj"
    packed, _ = write_pair(tmp_path, PACKINGS["gptq reordered"])
    change_tensors(packed, lambda tensors: tensors.update({f"{name}.g_idx": torch.zeros(128, dtype=torch.int32)}))
    with pytest.raises(CheckpointError, match=rf"{name}\.g_idx: expected 4 groups"):
        PagedRunner(packed)
    change_tensors(packed, lambda tensors: tensors.pop(f"{name}.scales"))
    with pytest.raises(CheckpointError, match=rf"missing tensor {name}\.scales"):
        PagedRunner(packed)


@pytest.mark.parametrize("variant", ["phi3", "mixtral", "qwen2_moe", "qwen3_moe"])
@pytest.mark.parametrize("name", ["awq", "gptq reordered"])
def test_fused_projections_and_experts_may_be_packed(variant: str, name: str, tmp_path: Path) -> None:
    packed, plain = write_pair(tmp_path, PACKINGS[name], variant=variant)
    names = load_file(packed / "model.safetensors").keys()
    assert any(("qkv_proj" if variant == "phi3" else "experts.0.") in name for name in names if "qweight" in name)

    assert_same_logits(packed, plain, [8])


@pytest.mark.parametrize("form", ["gate_up_proj.qweight", "gate_up_proj_blocks"])
def test_experts_in_one_quantized_tensor_are_refused_with_the_reason(form: str, tmp_path: Path) -> None:
    packed, _ = write_pair(tmp_path, AWQ, variant="qwen3_moe")
    change_tensors(packed, lambda tensors: tensors.update({f"model.layers.1.mlp.experts.{form}": torch.zeros(8, 4, 4)}))
    with pytest.raises(
        CheckpointError, match=r"layers\.1\.mlp\.experts\.gate_up_proj.*a quantized tensor for all experts"
    ):
        PagedRunner(packed)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.gate", "model.embed_tokens", "lm_head"])
def test_modules_that_are_never_read_packed_are_named(name: str, tmp_path: Path) -> None:
    packed, _ = write_pair(tmp_path, AWQ, variant="qwen3_moe")

    def pack_it(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[f"{name}.weight"]
        tensors[f"{name}.qweight"] = torch.zeros(64, 1, dtype=torch.int32)

    change_tensors(packed, pack_it)
    with pytest.raises(CheckpointError, match=rf"{name}\.weight: is packed.*leave it out of the quantization"):
        PagedRunner(packed)


def test_packed_weights_without_settings_are_refused(tmp_path: Path) -> None:
    packed, _ = write_pair(tmp_path, AWQ)
    config = json.loads((packed / "config.json").read_text())
    del config["quantization_config"]
    (packed / "config.json").write_text(json.dumps(config))

    with pytest.raises(CheckpointError, match="no quantization_config"):
        PagedRunner(packed)
