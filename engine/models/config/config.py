"""Model configuration, parsed strictly from a checkpoint's `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from engine.config import Quantization
from engine.models.config.config_reader import ConfigReader, ModelConfigError
from engine.models.config.published import PublishedQuantization, read_published
from engine.models.config.rope import DivisorScaling, RopeConfig, read_global_and_local_rope, read_rope_config

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FALLBACK_MAX_POSITIONS = 2048

Activation = Literal["silu", "gelu_tanh"]
_ACTIVATIONS: Mapping[Activation, tuple[str, tuple[str, ...]]] = {
    "silu": ("hidden_act", ("silu", "swish")),
    "gelu_tanh": ("hidden_activation", ("gelu_pytorch_tanh",)),
}
"""Key of the activation in `config.json` and its accepted names, by activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTraits:
    """Mixture of experts in place of a dense MLP."""

    module: str
    """Name of the mixture in a layer's checkpoint tensors."""
    projections: tuple[str, str, str]
    """Names of an expert's gate, up and down projections in the checkpoint."""
    num_experts: int
    num_chosen: int
    """Number of experts for each token."""
    size: int
    """Size of an expert's inner activations."""
    is_normalized: bool
    """True if the chosen experts' weights are scaled to sum to 1."""
    shared_size: int | None = None
    """Inner size of the expert that every token uses; None: no such expert."""
    layers: frozenset[int]
    """Layers with experts; the others have a dense MLP."""
    router: str = "gate"
    """Name of the router in the mixture."""
    has_bias: bool = False
    """True if the router and the experts' projections have biases."""
    are_fused: bool = False
    """True if one tensor holds a projection of all experts, inputs first, gate and up in turn; not in GGUF files."""
    gate_limit: float | None = None
    """Limit of gate and up before a clamped SwiGLU; None: the model's plain activation."""
    gate_gain: float = 1.0
    """Factor of the gate inside the sigmoid of a clamped SwiGLU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentTraits:
    """Gated delta net in place of attention."""

    layers: frozenset[int]
    """Layers with it; the others have attention."""
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    window: int
    """Number of tokens that its convolution sees."""
    layout: Literal["plain", "by_key_head", "rates_by_key_head"] = "plain"
    """Projections of which each key head's and those of its value heads follow one another: none, all, or rates and
    decays alone."""
    has_tiled_values: bool = False
    """True if neighbouring value heads belong to neighbouring key heads, and not to the same one."""

    @property
    def num_channels(self) -> int:
        """Number of queries, keys and values of a token."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    @property
    def state_bytes(self) -> int:
        """Upper bound of the bytes of one state over all layers."""
        numbers = self.num_value_heads * self.key_dim * self.value_dim + (self.window - 1) * self.num_channels
        return 4 * numbers * len(self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """Differences of one family from the plain decoder."""

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["each_head", "all_heads"] | None = None
    """Span of the query and key norms: each head, or all heads together."""
    norms: Literal["before", "after", "around"] = "before"
    """Position of the norms: before each of a layer's two branches, after it, or both."""
    norm_offset: float = 0.0
    """Number added to the weights of all norms."""
    embedding_scale: float | None = None
    """Factor of the embeddings; None: 1."""
    attention_scale: float | None = None
    """Factor of the attention scores; None: head_dim ** -0.5."""
    attention_softcap: float | None = None
    has_sinks: bool = False
    """True if each head has a logit that takes a share of the attention and has no value."""
    logit_softcap: float | None = None
    """Cap of the logits: a logit l becomes softcap * tanh(l / softcap)."""
    is_tied_by_default: bool = False
    """Default of `tie_word_embeddings`."""
    has_local_rope: bool = False
    """True if layers with a sliding window have their own rope settings."""
    activation: Activation = "silu"
    """Activation of the MLP's gate."""
    experts: ExpertTraits | None = None
    recurrent: RecurrentTraits | None = None
    has_output_gate: bool = False
    """True if a gate, projected beside the queries of each head, scales the attention's output."""
    branch_scale: float | None = None
    """Factor of what attention and MLP add to the residual; None: 1."""
    logit_divisor: float | None = None
    """Number that the logits are divided by; None: 1."""
    norm_names: tuple[str | None, ...] | None = None
    """Checkpoint names of the norms before and after attention and before and after the MLP; None: the usual ones."""
    has_fused_qkv: bool = False
    """True if the checkpoint fuses queries, keys and values into one tensor."""
    has_fused_gate_up: bool = False
    """True if the checkpoint fuses gate and up into one tensor."""
    default_theta: float = 10_000.0
    """Default of `rope_theta`."""
    default_local_theta: float | None = None
    """Default of `rope_local_base_freq`; None: as `rope_theta`."""
    can_rotate_partly: bool = False
    """True if the family supports `partial_rotary_factor`."""
    default_rotated_share: float = 1.0
    """Default of `partial_rotary_factor`."""
    has_adjacent_pairs: bool = False
    """True if numbers that rotate together are adjacent in the checkpoint, not half a head apart."""
    unrotated_layers: frozenset[int] = frozenset()
    """Layers whose queries and keys do not rotate by position."""
    ignores_auto_map: bool = False
    """True if the code that published checkpoints name computes the same as this family."""
    sliding_windows: tuple[int | None, ...]
    """Sliding window of each layer, in tokens; None: full attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and arithmetic of a decoder-only model."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: RopeConfig
    local_rope: RopeConfig | None = None
    """Rope settings of the layers with a sliding window; None: as in `rope`."""
    tie_word_embeddings: bool
    dtype: torch.dtype
    """Dtype of the saved checkpoint."""
    eos_token_ids: tuple[int, ...]
    traits: ModelTraits
    published: PublishedQuantization | None = None
    """Quantization of the checkpoint's own weights; None: they are not quantized."""
    is_multimodal: bool = False
    """True if the checkpoint has parts for images or sound beside the text part, which alone is loaded."""

    @property
    def usual_model_len(self) -> int:
        """Default limit of a sequence's length; a longer limit changes the rope frequencies of short sequences too."""
        return min(self.rope.original_max_positions or self.max_position_embeddings, self.max_position_embeddings)

    def quantized_as(self, quantization: Quantization) -> ModelConfig:
        """Return the config under a quantization setting, which replaces that of a GGUF file's own tensors."""
        is_replaced = quantization != "none" and self.published is not None and self.published.method == "gguf"
        return replace(self, published=None) if is_replaced else self


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        ModelConfigError: The file cannot be read or is not a JSON object; the message names it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # also for an integer with more digits than Python converts
        raise ModelConfigError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelConfigError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def read_base_config(reader: ConfigReader, traits: ModelTraits, whole: ConfigReader | None = None) -> ModelConfig:
    """Read the fields that all families share, and combine them with the family's traits.

    Args:
        reader: Settings of the text model.
        traits: Traits of its family.
        whole: Settings of the multimodal checkpoint around it; None: the checkpoint is the text model.

    Raises:
        ModelConfigError: A field is missing or its value is not supported.
    """
    hidden_size = reader.positive_integer("hidden_size")
    num_heads = reader.positive_integer("num_attention_heads")
    num_kv_heads = reader.positive_integer("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise reader.error("num_key_value_heads", f"{num_kv_heads} does not divide the {num_heads} attention heads")
    if not reader.has("head_dim") and hidden_size % num_heads:
        raise reader.error("num_attention_heads", f"{num_heads} does not divide hidden_size {hidden_size}")
    head_dim = reader.positive_integer("head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        raise reader.error("head_dim", f"expected an even number, got {head_dim}")
    max_positions = reader.positive_integer("max_position_embeddings", default=_FALLBACK_MAX_POSITIONS)
    local_rope = None
    if traits.has_local_rope:
        thetas = traits.default_theta, traits.default_local_theta
        rope, local_rope = read_global_and_local_rope(reader, max_positions, *thetas)
    else:
        share = traits.default_rotated_share
        rope = read_rope_config(
            reader, max_positions, traits.default_theta, can_be_partial=traits.can_rotate_partly, default_share=share
        )
    if rope.rotated_size(head_dim) % 2:
        raise reader.error("partial_rotary_factor", f"{rope.rotated_share} of {head_dim} is not an even number")
    for scaling in (rope.scaling, rope.long_scaling):
        if isinstance(scaling, DivisorScaling) and 2 * len(scaling.divisors) != rope.rotated_size(head_dim):
            expected = f"expected {rope.rotated_size(head_dim) // 2} short and as many long factors"
            raise reader.error("rope_scaling", f"{expected}, got {len(scaling.divisors)}")
    whole = whole or reader
    named = [holder for holder in (whole, reader) if holder.has("tie_word_embeddings")] or [reader]
    return ModelConfig(
        model_type=reader.string("model_type"),
        vocab_size=reader.positive_integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.positive_integer("intermediate_size", default=_unused_dense_size(reader, traits)),
        num_layers=reader.num_layers(),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=reader.positive_number("rms_norm_eps", default=1e-6),
        max_position_embeddings=max_positions,
        rope=rope,
        local_rope=local_rope,
        tie_word_embeddings=named[0].boolean("tie_word_embeddings", default=traits.is_tied_by_default),
        dtype=_read_dtype(reader if reader.has("dtype") or reader.has("torch_dtype") else whole),
        eos_token_ids=(whole if whole.has("eos_token_id") else reader).token_ids("eos_token_id"),
        traits=traits,
        published=read_published(whole if whole.has("quantization_config") else reader),
        is_multimodal=whole is not reader,
    )


def refuse_unsupported(whole: ConfigReader, reader: ConfigReader, traits: ModelTraits) -> None:
    """Raise ModelConfigError for options whose arithmetic the layers do not implement.

    Args:
        whole: Settings of the checkpoint.
        reader: Settings of its text model, the same unless the checkpoint is multimodal.
        traits: Traits of the family.
    """
    if traits.experts is not None and traits.experts.num_chosen > traits.experts.num_experts:
        raise reader.error(
            "num_experts_per_tok", f"expected at most the {traits.experts.num_experts} experts there are"
        )
    if whole.has("auto_map") and not traits.ignores_auto_map:
        raise reader.error("auto_map", "the checkpoint requires code of its own, which is never run")
    key, names = _ACTIVATIONS[traits.activation]
    activation = reader.string(key, default=names[0])
    if activation not in names:
        raise reader.error(key, f"{activation!r} is not supported; expected {names[0]!r}")


def _unused_dense_size(reader: ConfigReader, traits: ModelTraits) -> int | None:
    """Return the size of dense MLPs where no layer has one, so that configs leave it out; None: some layer has one."""
    experts = traits.experts
    return experts.size if experts is not None and len(experts.layers) == reader.num_layers() else None


def _read_dtype(reader: ConfigReader) -> torch.dtype:
    key = "dtype" if reader.has("dtype") else "torch_dtype"
    name = reader.string(key, default="float32").removeprefix("torch.")
    if name not in _DTYPES:
        raise reader.error(key, f"{name!r} is not supported; expected one of {', '.join(_DTYPES)}")
    return _DTYPES[name]
