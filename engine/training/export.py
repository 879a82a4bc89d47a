"""Weights of a model in Hugging Face layout, rounded to bfloat16 when they are written."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from engine.training import tokenizer as tokenizer_module

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen3ForCausalLM


def export(model: "Qwen3ForCausalLM", tokenizer: "Tokenizer", folder: Path) -> None:
    """Write config.json, model.safetensors, generation_config.json and the tokenizer's files."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: parameter.detach().to(torch.bfloat16).contiguous() for name, parameter in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "config.json", _config(model))
    _write(
        folder / "generation_config.json",
        {
            "eos_token_id": [
                tokenizer.token_to_id(tokenizer_module.IM_END),
                tokenizer.token_to_id(tokenizer_module.END_OF_TEXT),
            ],
            "pad_token_id": tokenizer.token_to_id(tokenizer_module.END_OF_TEXT),
            "do_sample": False,
            "max_new_tokens": 512,
        },
    )
    tokenizer_module.save_tokenizer(tokenizer, folder)


def read_weights(folder: Path) -> "dict[str, torch.Tensor]":
    """Return a finished model's weights in float32, with the output layer, which shares the embedding's tensor."""
    from safetensors.torch import load_file

    weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    return {"lm_head.weight": weights["model.embed_tokens.weight"], **weights}


def _config(model: "Qwen3ForCausalLM") -> dict[str, object]:
    config = model.config
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": 10_000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
