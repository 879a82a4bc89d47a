"""Supported architectures of GGUF files: the Hugging Face family of each, and how the file differs from it.

A new family needs one row of `ARCHITECTURES`: the names of its family in `config.json`, the keys that are not common
to all, and what llama.cpp's converter changed in its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.models.gguf.container import GgufArray, GgufError
from engine.models.gguf.parts import GgufModel

_GEMMA2_27B_LAYERS = 46
_GEMMA3_27B_LAYERS = 62
_GEMMA_LOCAL_THETA = 10000.0
_GEMMA3_PERIOD = 6

_AROUND = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Names of the norms in families with norms before and after both branches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufArchitecture:
    """Relation between one architecture of GGUF files and its Hugging Face family."""

    model_type: str
    class_name: str
    """Name in `architectures` of config.json."""
    extras: Callable[[GgufModel, str], dict[str, Any]] = lambda model, arch: {}
    """Function from the file and its architecture's name to the family's own keys of config.json."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of a layer's modules, GGUF to Hugging Face, that differ from the common ones."""
    has_permuted_heads: bool = False
    """True if the converter interleaved the two halves of each query and key head."""
    norm_offset: float = 0.0
    """Number that the converter added to the weights of all norms."""
    experts: tuple[str, str, str, str] | None = None
    """Module of the experts in a layer, and the names of their gate, up and down projections."""


def _gemma_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    found: dict[str, Any] = {"hidden_activation": "gelu_pytorch_tanh"}
    key = f"{arch}.attention.sliding_window"
    if model.has(key):
        found["sliding_window"] = model.integer(key)
    for name in ("attn", "final"):
        key = f"{arch}.{name}_logit_softcapping"
        found[f"{name}_logit_softcapping"] = model.number(key) if model.has(key) else None
    return found


def _query_size(model: GgufModel, arch: str, large_num_layers: int) -> float:
    """Return the number whose root divides Gemma's scores: the head size, in the 27B models a head's share."""
    if model.integer(f"{arch}.block_count") == large_num_layers:
        return model.integer(f"{arch}.embedding_length") / model.integer(f"{arch}.attention.head_count")
    return head_size(model, arch)


def _gemma2_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {**_gemma_extras(model, arch), "query_pre_attn_scalar": _query_size(model, arch, _GEMMA2_27B_LAYERS)}


def _gemma3_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    found = _gemma_extras(model, arch)
    found["query_pre_attn_scalar"] = _query_size(model, arch, _GEMMA3_27B_LAYERS)
    found["rope_local_base_freq"] = model.number(f"{arch}.rope.freq_base_swa", _GEMMA_LOCAL_THETA)
    key = f"{arch}.attention.sliding_window_pattern"
    if isinstance(model.metadata.get(key), GgufArray):
        kinds = ["sliding_attention" if is_local else "full_attention" for is_local in model.numbers(key)]
        return {**found, "layer_types": kinds}
    return {**found, "sliding_window_pattern": model.integer(key, _GEMMA3_PERIOD)}


def _mixtral_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {
        "num_local_experts": model.integer(f"{arch}.expert_count"),
        "num_experts_per_tok": model.integer(f"{arch}.expert_used_count"),
    }


def _qwen_experts(model: GgufModel, arch: str) -> dict[str, Any]:
    count = model.integer(f"{arch}.expert_count")
    place = model.tensors.get("blk.0.ffn_gate_exps.weight")
    width = None if place is None or len(place.shape) != 3 else place.shape[1]
    return {
        "num_experts": count,
        "num_experts_per_tok": model.integer(f"{arch}.expert_used_count"),
        "moe_intermediate_size": model.integer(f"{arch}.expert_feed_forward_length", width),
    }


def _qwen2_moe_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    place = model.tensors.get("blk.0.ffn_gate_shexp.weight")
    width = None if place is None else place.shape[0]
    shared_size = model.integer(f"{arch}.expert_shared_feed_forward_length", width)
    return {**_qwen_experts(model, arch), "shared_expert_intermediate_size": shared_size}


def _qwen3_moe_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {**_qwen_experts(model, arch), "norm_topk_prob": True}


def _llama_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    has_bias = "blk.0.attn_q.bias" in model.tensors
    return {"attention_bias": has_bias, "mlp_bias": "blk.0.ffn_gate.bias" in model.tensors}


def _phi3_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    key = f"{arch}.attention.sliding_window"
    window = model.integer(key, 0)
    rotated_share = model.integer(f"{arch}.rope.dimension_count", head_size(model, arch)) / head_size(model, arch)
    return {"sliding_window": window or None, "partial_rotary_factor": rotated_share}


_QWEN_EXPERTS = ("mlp", "gate_proj", "up_proj", "down_proj")
_MIXTRAL = GgufArchitecture(
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    extras=_mixtral_extras,
    has_permuted_heads=True,
    experts=("block_sparse_moe", "w1", "w3", "w2"),
)

ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture(
        model_type="llama", class_name="LlamaForCausalLM", extras=_llama_extras, has_permuted_heads=True
    ),
    "qwen2": GgufArchitecture(model_type="qwen2", class_name="Qwen2ForCausalLM"),
    "qwen2moe": GgufArchitecture(
        model_type="qwen2_moe", class_name="Qwen2MoeForCausalLM", extras=_qwen2_moe_extras, experts=_QWEN_EXPERTS
    ),
    "qwen3": GgufArchitecture(model_type="qwen3", class_name="Qwen3ForCausalLM"),
    "qwen3moe": GgufArchitecture(
        model_type="qwen3_moe", class_name="Qwen3MoeForCausalLM", extras=_qwen3_moe_extras, experts=_QWEN_EXPERTS
    ),
    "gemma2": GgufArchitecture(
        model_type="gemma2", class_name="Gemma2ForCausalLM", extras=_gemma2_extras, renamed=_AROUND, norm_offset=1.0
    ),
    "gemma3": GgufArchitecture(
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        extras=_gemma3_extras,
        renamed=_AROUND,
        norm_offset=1.0,
    ),
    "olmo2": GgufArchitecture(
        model_type="olmo2",
        class_name="Olmo2ForCausalLM",
        renamed={"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
    ),
    "phi3": GgufArchitecture(
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        extras=_phi3_extras,
        renamed={"ffn_up": "mlp.gate_up_proj"},
    ),
}
"""Rows by `general.architecture`."""


def find_architecture(model: GgufModel) -> tuple[str, GgufArchitecture]:
    """Return the architecture's name in the file and its row.

    Raises:
        GgufError: The architecture is not supported.
    """
    arch = model.string("general.architecture")
    row = ARCHITECTURES.get(arch)
    if row is None:
        known = ", ".join(ARCHITECTURES)
        raise model.error("general.architecture", f"{arch!r} is not supported; expected one of {known}")
    if arch == "llama" and model.integer("llama.expert_count", 0) > 0:
        return arch, _MIXTRAL
    return arch, row


def head_size(model: GgufModel, arch: str) -> int:
    """Return the size of an attention head.

    Raises:
        GgufError: The size is missing, impossible, or different for keys and values.
    """
    num_heads = model.integer(f"{arch}.attention.head_count")
    if num_heads < 1:
        raise model.error(f"{arch}.attention.head_count", f"expected a positive integer, got {num_heads}")
    size = model.integer(f"{arch}.attention.key_length", model.integer(f"{arch}.embedding_length") // num_heads)
    value_size = model.integer(f"{arch}.attention.value_length", size)
    if size < 1 or value_size != size:
        raise GgufError(f"{model.path}: heads of {size} numbers for keys and {value_size} for values are not supported")
    return size
