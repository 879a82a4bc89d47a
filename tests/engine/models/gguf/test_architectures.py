"""A model of every family, written to GGUF by the library's own names, has the logits of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.cpu.execution.model import CompiledModel
from engine.models.gguf.architectures import ARCHITECTURES, find_architecture
from engine.models.gguf.container import GgufError
from engine.models.gguf.folder import prepare_folder
from engine.models.gguf.parts import GgufModel
from tests.engine.models.checkpoints import make_reference
from tests.engine.models.families.parity import PROMPT, TOLERANCE, reference_logits
from tests.engine.models.gguf.files import close, write_byte_level_vocabulary, write_model, write_shape
from tests.engine.models.paged import PagedRunner, Row

PERIODIC = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama2": {},
    "llama3": {},
    "llama_biased": {},
    "llama_linear_rope": {},
    "llama_yarn": {},
    "qwen2": {},
    "qwen3": {},
    # GGUF has no query_pre_attn_scalar: it follows from the head size.
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {"query_pre_attn_scalar": 16},
    "mixtral": {"sliding_window": None},
    "qwen2_moe": {"mlp_only_layers": []},
    "qwen3_moe": {"decoder_sparse_step": 1},
    "olmo2": {},
    "phi3": {},
    "phi3_longrope": {},
    "phi3_partial": {},
    "olmo3": {},
    # GGUF has no key for these layers: it is every fourth one.
    "smollm3": {"no_rope_layers": None, "num_hidden_layers": 4},
    "granite": {},
    "glm4": {},
    "exaone4": {},
    "exaone4_full": {},
    "gpt_oss": {"swiglu_limit": 7.0, "layer_types": None},
    # GGUF has the period of full attention.
    "qwen3_5": PERIODIC,
    "qwen3_5_moe": PERIODIC,
    "qwen3_next": {**PERIODIC, "mlp_only_layers": [], "norm_topk_prob": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_logits_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant, **VARIANTS[variant])
    folder = prepare_folder(write_model(tmp_path / "model.gguf", reference), tmp_path / "cache")

    logits = PagedRunner(folder, shuffle_seed=5).prefill(Row(list(PROMPT)), [13, 7, 1, 22])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


READ_BY_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "llama2": {},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "qwen2_moe": {"mlp_only_layers": [], "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
    "qwen3_moe": {"decoder_sparse_step": 1, "head_dim": 128, "moe_intermediate_size": 768},
    "gemma2": {
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": 4096,
    },
    "gemma3": {
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "layer_types": ["sliding_attention"] * 3,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "phi3": {"vocab_size": 32064, "sliding_window": None},
}
"""Variants whose GGUF files the installed transformers reads, with the published values of what it does not read.

It does not read scaled rope, biases of Llama and Mixtral's experts, and fails at files of Qwen3.5 and gpt-oss of
these sizes.
"""
NOT_IN_TRANSFORMERS = ("olmo2", "olmo3", "smollm3", "granite", "glm4", "exaone4", "exaone4_full", "qwen3_next")
"""Variants whose GGUF files the installed transformers refuses."""


@pytest.mark.parametrize("variant", READ_BY_TRANSFORMERS)
def test_the_logits_are_those_of_transformers_own_reader(variant: str, tmp_path: Path) -> None:
    file = write_model(tmp_path / "model.gguf", make_reference(variant, **READ_BY_TRANSFORMERS[variant]))
    theirs: PreTrainedModel = AutoModelForCausalLM.from_pretrained(  # type: ignore[no-untyped-call]
        tmp_path, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()

    logits = PagedRunner(prepare_folder(file, tmp_path / "cache")).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(theirs, PROMPT)).abs().max() < 1e-3


@pytest.mark.parametrize("variant", NOT_IN_TRANSFORMERS)
def test_transformers_refuses_the_others(variant: str, tmp_path: Path) -> None:
    file = write_model(tmp_path / "model.gguf", make_reference(variant, **VARIANTS[variant]))

    with pytest.raises(ValueError, match="not supported"):
        AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name)


def test_every_row_is_covered() -> None:
    covered = {make_reference(variant).config.model_type for variant in VARIANTS}

    assert covered >= {row.model_type for row in ARCHITECTURES.values()}


@pytest.mark.parametrize("arch", ["mamba", "falcon", "mistral3"])
def test_an_unknown_architecture_is_refused_with_the_known_ones(arch: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", arch)
    writer.add_tensor("x", make_reference("llama2").lm_head.weight.detach().numpy())

    with pytest.raises(GgufError, match=f"'{arch}' is not supported; expected one of llama, qwen2"):
        find_architecture(GgufModel([close(writer, tmp_path / "model.gguf")]))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "MXFP4"])
def test_gated_delta_nets_may_stay_quantized(kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "linear_value_head_dim": 16, "moe_intermediate_size": 64}
    reference = make_reference("qwen3_5_moe", **PERIODIC, **sizes, shared_expert_intermediate_size=64)
    file = write_model(tmp_path / "model.gguf", reference, gguf.GGMLQuantizationType[kind])
    folder = prepare_folder(file, tmp_path / "cache")
    logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])
    config = json.loads((folder / "config.json").read_text())
    # Without it all tensors are read as numbers.
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": None}))

    expected = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    # Rounded activations may lead a token to another expert.
    assert ((logits - expected).norm(dim=1) / expected.norm(dim=1)).median() < 0.05


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "MXFP4"])
def test_compiled_gated_delta_nets_may_stay_quantized(kind: str, tmp_path: Path) -> None:
    reference = make_reference("qwen3_5", **PERIODIC, hidden_size=64, linear_value_head_dim=16, intermediate_size=96)
    file = write_model(tmp_path / "model.gguf", reference, gguf.GGMLQuantizationType[kind])
    folder = prepare_folder(file, tmp_path / "cache")
    runner = PagedRunner(folder, compiled_threads=2)
    assert isinstance(runner.model, CompiledModel)
    logits = runner.prefill(Row(list(PROMPT)), [30, 1])
    # Torch multiplies the same codes by inputs that are rounded alike.
    runner.model.max_tokens = 0
    expected = runner.prefill(Row(list(PROMPT)), [30, 1])

    assert any("int" in name for name in runner.model.products)
    # Where a rounding is a tie, a sum in another order rounds to the other step.
    assert ((logits - expected).norm(dim=1) / expected.norm(dim=1)).median() < 0.02
    exact = reference_logits(reference, PROMPT)
    assert kind != "Q8_0" or (logits - exact).norm() < 0.15 * exact.norm()


def test_layers_that_predict_further_tokens_and_joined_experts_are_read(tmp_path: Path) -> None:
    reference = make_reference("qwen3_5_moe", **PERIODIC)
    write_model(tmp_path / "plain.gguf", reference)
    reader = gguf.GGUFReader(tmp_path / "plain.gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen35moe")
    write_shape(writer, reference.config)
    writer.add_block_count(5)
    writer.add_nextn_predict_layers(1)
    write_byte_level_vocabulary(writer, 97)
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    for layer in range(4):
        pair = [tensors.pop(f"blk.{layer}.ffn_{name}_exps.weight") for name in ("gate", "up")]
        tensors[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate(pair, 1)
    tensors["blk.4.nextn.eh_proj.weight"] = tensors["blk.4.attn_q.weight"] = np.zeros((48, 96), np.float32)
    for name, numbers in tensors.items():
        writer.add_tensor(name, numbers)
    folder = prepare_folder(close(writer, tmp_path / "model.gguf"), tmp_path / "cache")

    logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < 1e-3
