"""A config.json is read as transformers reads it, and what cannot be served is refused by file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.config.config import ModelConfig
from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import read_model_config
from tests.engine.models.checkpoints import LLAMA3_ROPE, VARIANTS, make_reference

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}


def read(directory: Path, **changes: Any) -> ModelConfig:
    values = {**BASE, **changes}
    (directory / "config.json").write_text(json.dumps({key: v for key, v in values.items() if v != "absent"}))
    return read_model_config(directory)


@pytest.mark.parametrize("variant", VARIANTS)
def test_reads_what_transformers_writes(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant)
    reference.config.save_pretrained(tmp_path)

    config = read_model_config(tmp_path)

    assert config.model_type == reference.config.model_type
    assert config.num_kv_heads == reference.config.num_key_value_heads
    assert config.tie_word_embeddings is reference.config.tie_word_embeddings
    rotary = reference.model.rotary_emb
    theirs = rotary.full_attention_inv_freq if config.local_rope else rotary.inv_freq
    assert torch.allclose(config.rope.inverse_frequencies(config.head_dim), theirs, rtol=1e-6)


def test_absent_fields_take_the_usual_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, num_key_value_heads="absent", rms_norm_eps="absent", architectures=None)

    assert (config.num_kv_heads, config.head_dim, config.rms_norm_eps) == (6, 8, 1e-6)
    assert (config.dtype, config.eos_token_ids, config.rope.theta) == (torch.float32, (), 10000.0)
    assert not config.tie_word_embeddings


@pytest.mark.parametrize(("saved", "ids"), [(7, (7,)), ([7, 9], (7, 9)), (None, ())])
def test_end_tokens_may_be_one_or_several(saved: Any, ids: tuple[int, ...], tmp_path: Path) -> None:
    assert read(tmp_path, eos_token_id=saved).eos_token_ids == ids


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_checkpoint_dtype_is_read_from_either_key(key: str, tmp_path: Path) -> None:
    assert read(tmp_path, **{key: "bfloat16"}).dtype == torch.bfloat16


QWEN: dict[str, Any] = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 32}
PHI3: dict[str, Any] = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]}
LONGROPE: dict[str, Any] = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0, 3.0, 4.0, 5.0]}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
GEMMA2: dict[str, Any] = {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 32,
}
GEMMA3: dict[str, Any] = {**GEMMA2, "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}
MIXED = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "mamba"}, "model_type: 'mamba' is not supported; expected one of llama, mistral"),
        ({"model_type": "absent"}, "model_type: is required"),
        ({**QWEN_MOE, "num_experts": "absent"}, "num_local_experts: is required"),
        ({**QWEN_MOE, "num_experts_per_tok": 9}, "num_experts_per_tok: expected at most the 8 experts there are"),
        ({**QWEN_MOE, "mlp_only_layers": [-1]}, "mlp_only_layers: expected a list of integers, 0 or more"),
        ({**QWEN_MOE, "use_sliding_window": True}, "use_sliding_window: sliding windows are not supported"),
        ({**GEMMA2, "hidden_activation": "relu"}, "hidden_activation: 'relu' is not supported; expected 'gelu_pyt"),
        ({**GEMMA2, "use_bidirectional_attention": True}, "use_bidirectional_attention: attention to later tokens"),
        ({**GEMMA3, "partial_rotary_factor": 0.5}, "partial_rotary_factor: rotating a part"),
        ({**PHI3, "rope_scaling": {"type": "longrope"}}, "rope_scaling.short_factor: is required"),
        (
            {**PHI3, "rope_scaling": {**LONGROPE, "long_factor": [1.0, 0.0]}},
            "rope_scaling.long_factor: expected a list",
        ),
        ({**PHI3, "rope_scaling": {**LONGROPE, "short_factor": [1.0]}}, "rope_scaling: expected 4 short and as many"),
        ({**PHI3, "partial_rotary_factor": 2.0}, "partial_rotary_factor: expected at most 1.0"),
        ({**PHI3, "partial_rotary_factor": 0.4}, "partial_rotary_factor: 0.4 of 8 is not an even number"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures: expected LlamaForCausalLM"),
        ({"architectures": "LlamaForCausalLM"}, "architectures: expected a list of strings"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quantization_config.quant_method: 'hqq'"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map: the checkpoint requires code of its own"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported"),
        ({"hidden_size": "48"}, "hidden_size: expected a positive integer, got '48'"),
        ({"hidden_size": True}, "hidden_size: expected a positive integer, got True"),
        ({"vocab_size": 0}, "vocab_size: expected a positive integer, got 0"),
        ({"vocab_size": "absent"}, "vocab_size: is required"),
        ({"num_key_value_heads": 4}, "num_key_value_heads: 4 does not divide the 6"),
        ({"num_attention_heads": 5, "num_key_value_heads": 1}, "num_attention_heads: 5 does not divide hidden_size"),
        ({"head_dim": 7}, "head_dim: expected an even number"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: expected a number above 0"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps: expected a number above 0, got 1000"),
        ({"rope_theta": 10**400}, "rope_theta: expected a number above 0, got 1000"),
        ({"rope_theta": -(10**400)}, "rope_theta: expected a number above 0, got -1000"),
        ({"rope_theta": float("nan")}, "rope_theta: expected a number above 0, got nan"),
        ({"rope_scaling": {"type": "linear", "factor": 10**400}}, "rope_scaling.factor: expected a number above 0"),
        (
            {**PHI3, "rope_scaling": {**LONGROPE, "long_factor": [1.0, 10**400]}},
            "rope_scaling.long_factor: expected a list",
        ),
        ({"dtype": "float8"}, "dtype: 'float8' is not supported"),
        ({"eos_token_id": -1}, "eos_token_id: expected a token id"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: expected true or false"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: rotating a part"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_scaling.rope_type: 'mrope' is not supported"),
        ({"rope_scaling": {"type": "dynamic"}}, "rope_scaling.factor: is required"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: is required"),
        ({"rope_scaling": [1]}, "rope_scaling: expected an object"),
        ({"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 0.5}}, "rope_parameters.high_freq_factor: expected"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters.full_attention: rope"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor: rotating"),
        ({**QWEN, "layer_types": MIXED}, "layer_types: has sliding_attention although use_sliding_window is false"),
        ({**QWEN, "layer_types": MIXED[:3]}, "layer_types: has 3 entries for 4 layers"),
        ({**QWEN, "layer_types": ["linear_attention"] * 4}, "layer_types: 'linear_attention' is not supported"),
        (
            {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "layer_types": MIXED},
            "layer_types: windows that differ",
        ),
    ],
)
def test_refusals_name_file_and_key(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        read(tmp_path, **changes)

    assert str(refusal.value).startswith(f"{tmp_path / 'config.json'}: {complaint}")
