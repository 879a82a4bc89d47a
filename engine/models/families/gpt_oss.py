"""gpt-oss: sinks in the attention, a window in every other layer, experts with biases and a clamped SwiGLU."""

from __future__ import annotations

from engine.models.config.config import ExpertTraits, ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_alternating_windows

ARCHITECTURE = "GptOssForCausalLM"
_DEFAULT_THETA = 150_000.0
_DEFAULT_GAIN = 1.702
_DEFAULT_LIMIT = 7.0


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a gpt-oss config. Raises ModelConfigError."""
    if not reader.has("rope_scaling") and not reader.has("rope_parameters"):
        raise reader.error("rope_scaling", "is required")
    if not reader.has("sliding_window"):
        raise reader.error("sliding_window", "is required")
    has_bias = reader.boolean("attention_bias", default=True)
    experts = ExpertTraits(
        module="mlp",
        projections=("gate_proj", "up_proj", "down_proj"),
        num_experts=reader.positive_integer("num_local_experts"),
        num_chosen=reader.positive_integer("num_experts_per_tok"),
        size=reader.positive_integer("intermediate_size"),
        is_normalized=True,
        layers=frozenset(range(reader.num_layers())),
        router="router",
        has_bias=True,
        are_fused=True,
        gate_limit=reader.positive_number("swiglu_limit", default=_DEFAULT_LIMIT),
        gate_gain=reader.positive_number("swiglu_alpha", default=_DEFAULT_GAIN),
    )
    return ModelTraits(
        qkv_bias=has_bias,
        output_bias=has_bias,
        has_sinks=True,
        default_theta=_DEFAULT_THETA,
        experts=experts,
        sliding_windows=read_alternating_windows(reader, 2),
    )
