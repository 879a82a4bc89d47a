"""OLMo 2: norms after each branch instead of before; queries and keys are normalized over all heads."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "Olmo2ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of an OLMo 2 config. Raises ModelConfigError."""
    has_bias = reader.boolean("attention_bias", default=False)
    return ModelTraits(
        qkv_bias=has_bias,
        output_bias=has_bias,
        qk_norm="all_heads",
        norms="after",
        sliding_windows=(None,) * reader.num_layers(),
    )
