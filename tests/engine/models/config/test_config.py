"""A config.json is read as transformers reads it, and what cannot be served is refused by file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.config.config import ModelConfig
from engine.models.config.config_reader import ModelConfigError
from engine.models.config.rope import Llama3Scaling, YarnScaling
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


def test_old_and_new_rope_layouts_mean_the_same(tmp_path: Path) -> None:
    without_theta = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}

    new = read(tmp_path, rope_parameters=LLAMA3_ROPE).rope
    old = read(tmp_path, rope_theta=500.0, rope_scaling=without_theta).rope
    older = read(tmp_path, rope_theta=500.0, rope_scaling={**without_theta, "rope_type": None, "type": "llama3"}).rope

    assert new == old == older
    assert isinstance(new.scaling, Llama3Scaling)
    assert new.theta == 500.0


def test_yarn_sharpens_attention_unless_configured(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

    rope = read(tmp_path, rope_scaling=yarn).rope

    assert isinstance(rope.scaling, YarnScaling)
    assert rope.attention_factor == pytest.approx(1.1386294)
    assert read(tmp_path, rope_scaling={**yarn, "attention_factor": 1.0}).rope.attention_factor == 1.0


def test_yarn_may_weigh_its_sharpening(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5}

    assert read(tmp_path, rope_scaling=yarn).rope.attention_factor == pytest.approx(1.1386294 / 1.0693147)
    assert read(tmp_path, rope_scaling={**yarn, "mscale_all_dim": None}).rope.attention_factor == pytest.approx(
        1.1386294
    )


def test_dynamic_scaling_changes_nothing_within_the_models_own_length(tmp_path: Path) -> None:
    assert read(tmp_path, rope_scaling={"type": "dynamic", "factor": 2.0}).rope == read(tmp_path).rope


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_longrope_is_reported_by_how_far_sequences_reach(kind: str, tmp_path: Path) -> None:
    config = read(tmp_path, **PHI3, rope_scaling={**LONGROPE, "type": kind}, original_max_position_embeddings=64)

    plain = read(tmp_path, **PHI3).rope.inverse_frequencies(8)
    assert torch.equal(config.rope.reaching(64).inverse_frequencies(8), plain)
    assert torch.allclose(config.rope.reaching(65).inverse_frequencies(8), plain / torch.tensor([2.0, 3.0, 4.0, 5.0]))
    assert (config.usual_model_len, config.max_position_embeddings) == (64, 256)
    assert config.rope.attention_factor == pytest.approx((1 + 1 / 3) ** 0.5)


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
    ("changes", "windows"),
    [
        ({}, (None, None, None, None)),
        ({"use_sliding_window": False, "max_window_layers": 0}, (None, None, None, None)),
        ({"use_sliding_window": True, "max_window_layers": 0}, (32, 32, 32, 32)),
        ({"use_sliding_window": True, "max_window_layers": 3}, (None, None, None, 32)),
        ({"use_sliding_window": True, "max_window_layers": 9}, (None, None, None, None)),
        ({"use_sliding_window": True, "layer_types": MIXED}, (None, 32, None, 32)),
        ({"layer_types": ["full_attention"] * 4}, (None, None, None, None)),
    ],
)
def test_qwen_windows_per_layer(changes: dict[str, Any], windows: tuple[int | None, ...], tmp_path: Path) -> None:
    assert read(tmp_path, **QWEN, **changes).traits.sliding_windows == windows


def test_mistral_slides_everywhere_or_nowhere(tmp_path: Path) -> None:
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}

    assert read(tmp_path, **mistral, sliding_window=16).traits.sliding_windows == (16,) * 4
    assert read(tmp_path, **mistral, sliding_window=None).traits.sliding_windows == (None,) * 4


def test_gemma2_caps_by_default_and_not_when_set_to_null(tmp_path: Path) -> None:
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": 20.0}

    usual, stated = read(tmp_path, **GEMMA2).traits, read(tmp_path, **GEMMA2, **caps).traits

    assert (usual.attention_softcap, usual.logit_softcap) == (50.0, 30.0)
    assert (stated.attention_softcap, stated.logit_softcap) == (None, 20.0)


def test_gemma_is_tied_and_alternates_when_its_config_is_silent(tmp_path: Path) -> None:
    config = read(tmp_path, **GEMMA2)

    assert config.tie_word_embeddings
    assert config.traits.sliding_windows == (32, None, 32, None)
    assert read(tmp_path, **GEMMA3).traits.sliding_windows == (32,) * 4
    assert read(tmp_path, **GEMMA3, sliding_window_pattern=3).traits.sliding_windows == (32, 32, None, 32)


def test_gemma3_rope_layouts_mean_the_same(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    by_kind = {"full_attention": {**linear, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e3}}

    new = read(tmp_path, **GEMMA3, rope_parameters=by_kind)
    old = read(tmp_path, **GEMMA3, rope_theta=5e5, rope_local_base_freq=1e3, rope_scaling=linear)
    usual = read(tmp_path, **GEMMA3)

    assert (new.rope, new.local_rope) == (old.rope, old.local_rope)
    assert usual.local_rope is not None
    assert (usual.rope.theta, usual.local_rope.theta) == (1e6, 1e4)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, {0, 1, 2, 3}),
        ({"decoder_sparse_step": 2}, {1, 3}),
        ({"mlp_only_layers": [0, 3]}, {1, 2}),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, {1}),
        ({"num_experts": "absent", "num_local_experts": 8}, {0, 1, 2, 3}),
    ],
)
def test_which_layers_have_experts(changes: dict[str, Any], layers: set[int], tmp_path: Path) -> None:
    experts = read(tmp_path, **{**QWEN_MOE, **changes}).traits.experts

    assert experts is not None
    assert (experts.num_experts, experts.layers) == (8, frozenset(layers))


def test_phi3_is_served_without_the_code_its_checkpoints_name(tmp_path: Path) -> None:
    config = read(tmp_path, **PHI3, auto_map={"AutoModel": "modeling_phi3.Phi3"}, partial_rotary_factor=0.5)

    assert config.rope.rotated_share == 0.5
    assert config.rope.inverse_frequencies(config.head_dim).shape == (2,)


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
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map: the checkpoint asks for code of its own"),
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


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "expected a JSON object, got list"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
    ],
)
def test_broken_files_are_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ModelConfigError, match=complaint):
        read_model_config(tmp_path)


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"config\.json: cannot be read: No such file"):
        read_model_config(tmp_path)
