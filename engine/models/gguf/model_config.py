"""`config.json` and `generation_config.json` of the model in a GGUF file."""

from __future__ import annotations

import math
import struct
from typing import Any

from engine.models.gguf.architectures import GgufArchitecture, find_architecture, head_size, num_layers
from engine.models.gguf.parts import GgufModel

_DEFAULT_THETA = 10000.0
_FREQUENCY_FACTORS = "rope_freqs.weight"
_LONG_FACTORS = "rope_factors_long.weight"
_SHORT_FACTORS = "rope_factors_short.weight"
_PLAIN_TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


def make_config(model: GgufModel) -> dict[str, Any]:
    """Return the content of config.json.

    Raises:
        GgufError: The architecture is not supported, or a key is missing or wrong.
    """
    arch, row = find_architecture(model)
    _check_rotation(model, arch, row)
    embedding = model.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise model.error("token_embd.weight", "expected a tensor with two dimensions")
    num_heads = model.integer(f"{arch}.attention.head_count")
    found = {
        "model_type": row.model_type,
        "architectures": [row.class_name],
        "vocab_size": embedding.shape[0],
        "hidden_size": model.integer(f"{arch}.embedding_length"),
        "intermediate_size": _dense_size(model, arch),
        "num_hidden_layers": num_layers(model, arch),
        "num_attention_heads": num_heads,
        "num_key_value_heads": model.integer(f"{arch}.attention.head_count_kv", num_heads),
        "head_dim": head_size(model, arch),
        "rms_norm_eps": model.decimal(f"{arch}.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": model.integer(f"{arch}.context_length"),
        "rope_theta": model.decimal(f"{arch}.rope.freq_base", _DEFAULT_THETA),
        "tie_word_embeddings": "output.weight" not in model.tensors,
        "dtype": _dtype(model),
    }
    quantized_bits = [place.type.bits for place in model.tensors.values() if place.type.is_quantized]
    if quantized_bits:
        found["quantization_config"] = {"quant_method": "gguf", "bits": min(quantized_bits)}
    scaling = _rope_scaling(model, arch)
    if scaling is not None:
        found["rope_scaling"] = {**scaling, **row.yarn} if scaling["rope_type"] == "yarn" else scaling
    return found | row.extras(model, arch)


def _check_rotation(model: GgufModel, arch: str, row: GgufArchitecture) -> None:
    """Raise GgufError if only a part of each head rotates in a family that rotates heads as a whole."""
    key, size = f"{arch}.rope.dimension_count", head_size(model, arch)
    rotated = model.integer(key, size)
    if rotated != size and not row.can_rotate_partly:
        raise model.error(key, f"rotating {rotated} of a head's {size} numbers is not supported in this family")


def _dense_size(model: GgufModel, arch: str) -> int:
    """Return the size of dense MLPs; where all layers have experts, files may leave it out or state 0."""
    key = f"{arch}.feed_forward_length"
    size = model.integer(f"{arch}.expert_feed_forward_length", 0)
    return (model.integer(key, size) or size) if size else model.integer(key)


def _dtype(model: GgufModel) -> str:
    """Return the dtype of the matrices; quantized ones are computed in bfloat16 on a GPU."""
    types = {place.type.name for place in model.tensors.values() if len(place.shape) > 1}
    return _PLAIN_TYPES.get(types.pop(), "bfloat16") if len(types) == 1 else "bfloat16"


def _rope_scaling(model: GgufModel, arch: str) -> dict[str, Any] | None:
    prefix = f"{arch}.rope.scaling"
    context = model.integer(f"{arch}.context_length")
    if _LONG_FACTORS in model.tensors:
        original = model.integer(f"{prefix}.original_context_length", context)
        return _factors(model, _SHORT_FACTORS, _LONG_FACTORS, original, _longrope_sharpening(model, prefix, context))
    if _FREQUENCY_FACTORS in model.tensors:
        # Llama 3: the file holds the factors of all frequencies instead of the parameters they follow from.
        return _factors(model, _FREQUENCY_FACTORS, _FREQUENCY_FACTORS, context, 1.0)
    kind = model.string(f"{prefix}.type", "none")
    factor = model.decimal(f"{prefix}.factor", model.decimal(f"{arch}.rope.scale_linear", 1.0))
    if kind == "linear" or (kind == "none" and factor != 1.0 and not model.has(f"{prefix}.type")):
        return {"rope_type": "linear", "factor": factor}
    if kind == "none":
        return None
    if kind == "yarn":
        return _yarn(model, prefix, factor, context)
    raise model.error(f"{prefix}.type", f"{kind!r} is not supported; expected none, linear, yarn or longrope")


def _yarn(model: GgufModel, prefix: str, factor: float, context: int) -> dict[str, Any]:
    found = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": model.integer(f"{prefix}.original_context_length", context),
    }
    for name in ("beta_fast", "beta_slow"):
        key = f"{prefix}.yarn_{name}"
        if model.has(key):
            found[name] = model.decimal(key)
    if model.has(f"{prefix}.attn_factor"):
        sharpening = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
        found["attention_factor"] = model.number(f"{prefix}.attn_factor") * sharpening
    return found


def _longrope_sharpening(model: GgufModel, prefix: str, context: int) -> float:
    """Return the factor of rotated queries and keys: from the file, or else as published (arXiv 2402.13753)."""
    original = model.integer(f"{prefix}.original_context_length", context)
    factor = context / original if original > 0 else 1.0
    default = 1.0 if factor <= 1 or original < 2 else math.sqrt(1 + math.log(factor) / math.log(original))
    return model.number(f"{prefix}.attn_factor", default)


def _factors(model: GgufModel, short: str, long: str, original: int, sharpening: float) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": _floats(model, short),
        "long_factor": _floats(model, long),
        "original_max_position_embeddings": original,
        "attention_factor": sharpening,
    }


def _floats(model: GgufModel, name: str) -> list[float]:
    place = model.tensors.get(name)
    if place is None or place.type.name != "F32":
        raise model.error(name, "expected a tensor of the type F32")
    return list(struct.unpack(f"<{place.num_bytes // 4}f", model.data(name)))
