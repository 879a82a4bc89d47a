"""Gemma 3: normed queries and keys; most layers see a sliding window and rotate faster than the others."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.gemma.common import read_gemma_traits

ARCHITECTURE = "Gemma3ForCausalLM"
_DEFAULT_PERIOD = 6

TEXT_DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
"""Settings that `text_config` leaves out where they have these values."""


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Gemma 3 text config. Raises ModelConfigError."""
    period = reader.positive_integer("sliding_window_pattern", default=_DEFAULT_PERIOD)
    return read_gemma_traits(reader, full_attention_every=period, has_qk_norm=True, has_local_rope=True)
