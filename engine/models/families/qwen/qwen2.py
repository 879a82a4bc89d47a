"""Qwen2 and 2.5: biases on queries, keys and values; sliding windows on some layers."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_layer_windows

ARCHITECTURE = "Qwen2ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen2 config. Raises ModelConfigError."""
    return ModelTraits(qkv_bias=True, sliding_windows=read_layer_windows(reader))
