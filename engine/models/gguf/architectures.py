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
_EXAONE4_PERIOD = 4
_QWEN35_PERIOD = 4

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
    yarn: Mapping[str, Any] = field(default_factory=dict)
    """Settings of YaRN that the file lacks, or names otherwise; null: the usual one."""
    can_rotate_partly: bool = False
    """True if a part of each head may stay unrotated."""
    experts: tuple[str, str, str, str] | None = None
    """Module of the experts in a layer, and the names of their gate, up and down projections."""
    router: str = "gate"
    """Name of the router in the module of the experts."""


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
    if kinds := _layer_types(model, arch):
        return {**found, **kinds}
    period = model.integer(f"{arch}.attention.sliding_window_pattern", _GEMMA3_PERIOD)
    return {**found, "sliding_window_pattern": period}


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


def _qwen35_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    num_value_heads = model.integer(f"{arch}.ssm.time_step_rank")
    if num_value_heads < 1:
        raise model.error(f"{arch}.ssm.time_step_rank", f"expected a positive integer, got {num_value_heads}")
    return {
        **_rotated_share(model, arch),
        "linear_num_key_heads": model.integer(f"{arch}.ssm.group_count"),
        "linear_num_value_heads": num_value_heads,
        "linear_key_head_dim": model.integer(f"{arch}.ssm.state_size"),
        "linear_value_head_dim": model.integer(f"{arch}.ssm.inner_size") // num_value_heads,
        "linear_conv_kernel_dim": model.integer(f"{arch}.ssm.conv_kernel"),
        "full_attention_interval": model.integer(f"{arch}.full_attention_interval", _QWEN35_PERIOD),
        "linear_value_heads_are_tiled": True,
    }


def _qwen35_moe_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {**_qwen35_extras(model, arch), **_qwen2_moe_extras(model, arch)}


def _qwen3_next_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {
        **_qwen35_moe_extras(model, arch),
        "linear_value_heads_are_tiled": False,
        "linear_qkvz_is_split": "blk.0.ssm_in.weight" not in model.tensors,
    }


def _llama_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    has_bias = "blk.0.attn_q.bias" in model.tensors
    return {"attention_bias": has_bias, "mlp_bias": "blk.0.ffn_gate.bias" in model.tensors}


def _phi3_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    window = model.integer(f"{arch}.attention.sliding_window", 0)
    return {"sliding_window": window or None, **_rotated_share(model, arch)}


def _rotated_share(model: GgufModel, arch: str) -> dict[str, Any]:
    size = head_size(model, arch)
    return {"partial_rotary_factor": model.integer(f"{arch}.rope.dimension_count", size) / size}


def _glm4_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    has_bias = "blk.0.attn_q.bias" in model.tensors
    return {"attention_bias": has_bias, **_rotated_share(model, arch)}


def _granite_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {
        **_llama_extras(model, arch),
        "attention_multiplier": model.decimal(f"{arch}.attention.scale", head_size(model, arch) ** -0.5),
        "embedding_multiplier": model.decimal(f"{arch}.embedding_scale", 1.0),
        "residual_multiplier": model.decimal(f"{arch}.residual_scale", 1.0),
        "logits_scaling": model.decimal(f"{arch}.logit_scale", 1.0),
    }


def _gpt_oss_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    size = model.integer(f"{arch}.expert_feed_forward_length")
    return {
        **_mixtral_extras(model, arch),
        "intermediate_size": size,
        "attention_bias": "blk.0.attn_q.bias" in model.tensors,
        "sliding_window": model.integer(f"{arch}.attention.sliding_window"),
        **_layer_types(model, arch),
    }


def _layer_types(model: GgufModel, arch: str) -> dict[str, Any]:
    """Return the kinds of the layers where the file names each; else the family's own order holds."""
    key = f"{arch}.attention.sliding_window_pattern"
    if not isinstance(model.metadata.get(key), GgufArray):
        return {}
    return {"layer_types": ["sliding_attention" if is_local else "full_attention" for is_local in model.numbers(key)]}


def _exaone4_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    num_layers = model.integer(f"{arch}.block_count")
    window = model.integer(f"{arch}.attention.sliding_window", 0)
    if not window:
        return {"sliding_window": None}
    kinds = ["sliding_attention"] * (_EXAONE4_PERIOD - 1) + ["full_attention"]
    by_period = [kinds[layer % _EXAONE4_PERIOD] for layer in range(num_layers)]
    return {"sliding_window": window, "layer_types": by_period, **_layer_types(model, arch)}


def _olmo3_extras(model: GgufModel, arch: str) -> dict[str, Any]:
    return {"sliding_window": model.integer(f"{arch}.attention.sliding_window"), **_layer_types(model, arch)}


_QWEN_EXPERTS = ("mlp", "gate_proj", "up_proj", "down_proj")
_AFTER = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
"""Names of the norms in families with norms after both branches."""
_RECURRENT = {
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_in": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
"""Names of the modules in families with gated delta-net layers."""
_OLMO3 = GgufArchitecture(
    model_type="olmo3",
    class_name="Olmo3ForCausalLM",
    extras=_olmo3_extras,
    renamed=_AFTER,
    yarn={"attention_factor": None},
)
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
        renamed=_AFTER,
    ),
    "phi3": GgufArchitecture(
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        extras=_phi3_extras,
        renamed={"ffn_up": "mlp.gate_up_proj"},
        can_rotate_partly=True,
    ),
    "smollm3": GgufArchitecture(
        model_type="smollm3", class_name="SmolLM3ForCausalLM", extras=_llama_extras, has_permuted_heads=True
    ),
    "granite": GgufArchitecture(
        model_type="granite", class_name="GraniteForCausalLM", extras=_granite_extras, has_permuted_heads=True
    ),
    "glm4": GgufArchitecture(
        model_type="glm4",
        class_name="Glm4ForCausalLM",
        extras=_glm4_extras,
        renamed={
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
        can_rotate_partly=True,
    ),
    "exaone4": GgufArchitecture(
        model_type="exaone4", class_name="Exaone4ForCausalLM", extras=_exaone4_extras, renamed=_AFTER
    ),
    "qwen35": GgufArchitecture(
        model_type="qwen3_5_text",
        class_name="Qwen3_5ForCausalLM",
        extras=_qwen35_extras,
        renamed=_RECURRENT,
        norm_offset=1.0,
        can_rotate_partly=True,
    ),
    "qwen35moe": GgufArchitecture(
        model_type="qwen3_5_moe_text",
        class_name="Qwen3_5MoeForCausalLM",
        extras=_qwen35_moe_extras,
        renamed=_RECURRENT,
        norm_offset=1.0,
        can_rotate_partly=True,
        experts=_QWEN_EXPERTS,
    ),
    "qwen3next": GgufArchitecture(
        model_type="qwen3_next",
        class_name="Qwen3NextForCausalLM",
        extras=_qwen3_next_extras,
        renamed=_RECURRENT,
        norm_offset=1.0,
        can_rotate_partly=True,
        experts=_QWEN_EXPERTS,
    ),
    "gpt-oss": GgufArchitecture(
        model_type="gpt_oss",
        class_name="GptOssForCausalLM",
        extras=_gpt_oss_extras,
        renamed={"post_attention_norm": "post_attention_layernorm"},
        experts=_QWEN_EXPERTS,
        router="router",
        yarn={"truncate": False},
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
    if arch == "olmo2" and model.integer("olmo2.attention.sliding_window", 0) > 0:
        return arch, _OLMO3
    return arch, row


def num_layers(model: GgufModel, arch: str) -> int:
    """Return the number of layers without those behind the last one, which predict further tokens. Raises GgufError."""
    return model.integer(f"{arch}.block_count") - model.integer(f"{arch}.nextn_predict_layers", 0)


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
