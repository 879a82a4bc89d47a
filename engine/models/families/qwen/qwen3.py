"""Qwen3: a norm on every query and key head; sliding windows on some layers."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_layer_windows

ARCHITECTURE = "Qwen3ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen3 config. Raises ModelConfigError."""
    has_bias = reader.boolean("attention_bias", default=False)
    return ModelTraits(
        qkv_bias=has_bias, output_bias=has_bias, qk_norm="each_head", sliding_windows=read_layer_windows(reader)
    )
