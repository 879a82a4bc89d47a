"""Mistral: the plain decoder with one sliding window for all layers, or none."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "MistralForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Mistral config. Raises ModelConfigError."""
    if reader.has("layer_types"):
        raise reader.error("layer_types", "windows that differ between layers are not part of this family")
    window = reader.positive_integer("sliding_window") if reader.has("sliding_window") else None
    return ModelTraits(sliding_windows=(window,) * reader.num_layers())
