"""Gemma 3, text only: normed queries and keys; most layers see a sliding window and rotate faster than the others."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.gemma import read_gemma_traits

ARCHITECTURE = "Gemma3ForCausalLM"
_DEFAULT_PERIOD = 6


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Gemma 3 text config. Raises ModelConfigError."""
    period = reader.positive_integer("sliding_window_pattern", default=_DEFAULT_PERIOD)
    return read_gemma_traits(reader, full_attention_every=period, has_qk_norm=True, has_local_rope=True)
