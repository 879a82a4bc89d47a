"""Tiny random checkpoints of every supported family, saved by transformers itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

SHAPE: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

YARN_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.5, 2.0, 4.0, 8.0],
}

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "llama2": {"model_type": "llama", "num_key_value_heads": 6, "tie_word_embeddings": False},
    "llama3": {"model_type": "llama", "num_key_value_heads": 2, "rope_parameters": LLAMA3_ROPE},
    "llama_biased": {"model_type": "llama", "num_key_value_heads": 3, "attention_bias": True, "mlp_bias": True},
    "llama_linear_rope": {
        "model_type": "llama",
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    },
    "llama_dynamic_rope": {
        "model_type": "llama",
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0},
    },
    "llama_yarn": {"model_type": "llama", "num_key_value_heads": 2, "rope_parameters": YARN_ROPE},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 24, "head_dim": 16},
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen2_windowed": {
        "model_type": "qwen2",
        "num_key_value_heads": 3,
        "use_sliding_window": True,
        "sliding_window": 20,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True},
    "gemma2": {
        "model_type": "gemma2",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 20,
        "query_pre_attn_scalar": 24,
        # Low enough to bend most scores and logits.
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
        "tie_word_embeddings": True,
    },
    "mixtral": {
        "model_type": "mixtral",
        "num_key_value_heads": 2,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "sliding_window": 24,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_key_value_heads": 2,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "mlp_only_layers": [1],
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "decoder_sparse_step": 2,
    },
    "olmo2": {"model_type": "olmo2", "num_key_value_heads": 2},
    "olmo3": {
        "model_type": "olmo3",
        "num_key_value_heads": 2,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {**YARN_ROPE, "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
        },
    },
    "smollm3": {
        "model_type": "smollm3",
        "num_key_value_heads": 2,
        "no_rope_layers": [1, 0, 1],
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "tie_word_embeddings": True,
    },
    "smollm3_windowed": {
        "model_type": "smollm3",
        "num_key_value_heads": 2,
        "no_rope_layer_interval": 2,
        "use_sliding_window": True,
        "sliding_window": 20,
        "rope_parameters": YARN_ROPE,
    },
    "granite": {
        "model_type": "granite",
        "num_key_value_heads": 2,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.3,
        "logits_scaling": 2.5,
        "tie_word_embeddings": True,
    },
    "glm4": {"model_type": "glm4", "num_key_value_heads": 2, "head_dim": 16},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "sliding_window": 20,
        # Low enough to clamp some.
        "swiglu_limit": 0.7,
        "rope_parameters": {**YARN_ROPE, "truncate": False},
    },
    "qwen3_5": {
        "model_type": "qwen3_5_text",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
    },
    "qwen3_5_moe": {
        "model_type": "qwen3_5_moe_text",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
    },
    "qwen3_next": {
        "model_type": "qwen3_next",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "mlp_only_layers": [1],
        "norm_topk_prob": False,
    },
    "exaone4": {
        "model_type": "exaone4",
        "num_key_value_heads": 2,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "exaone4_full": {
        "model_type": "exaone4",
        "num_key_value_heads": 2,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 3,
    },
    "phi3": {"model_type": "phi3", "num_key_value_heads": 2, "sliding_window": 24},
    "phi3_longrope": {
        "model_type": "phi3",
        "num_key_value_heads": 2,
        "rope_parameters": LONGROPE,
        "original_max_position_embeddings": 64,
    },
    "phi3_partial": {
        "model_type": "phi3",
        "num_key_value_heads": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    },
}


def make_reference(variant: str, **changes: Any) -> PreTrainedModel:
    """A transformers model with weights large enough for its choices to be far apart."""
    settings = {**SHAPE, "tie_word_embeddings": False, **VARIANTS[variant], **changes}
    config = AutoConfig.for_model(**settings)
    torch.manual_seed(11)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        # Written out: the fused kinds leave out the cap on attention scores.
        config,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Random norms and biases too: all ones and zeros would hide one that is left out.
            parameter.normal_(1.0 if "norm" in name and not _adds_one(name, config.model_type) else 0.0, 0.2)
    return model


def _adds_one(norm: str, model_type: str) -> bool:
    """Whether a norm adds 1 to its weights; twice the usual weights make rounding errors grow from layer to layer."""
    if model_type in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"):
        return not norm.endswith("linear_attn.norm.weight")
    return "gemma" in model_type


def save_checkpoint(model: PreTrainedModel, directory: Path, max_shard_size: str = "5GB") -> Path:
    """The model's directory in Hugging Face layout."""
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    return directory
