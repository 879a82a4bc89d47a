"""Llama 2 and 3: the plain decoder with full attention in every layer."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "LlamaForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Llama config. Raises ModelConfigError."""
    has_bias = reader.boolean("attention_bias", default=False)
    return ModelTraits(
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=reader.boolean("mlp_bias", default=False),
        sliding_windows=(None,) * reader.num_layers(),
    )
