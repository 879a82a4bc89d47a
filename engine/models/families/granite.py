"""Granite 3: Llama with constant factors of embeddings, attention scores, branches and logits."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families import llama

ARCHITECTURE = "GraniteForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Granite config. Raises ModelConfigError."""
    return replace(
        llama.read_traits(reader),
        embedding_scale=reader.positive_number("embedding_multiplier", default=1.0),
        attention_scale=reader.positive_number("attention_multiplier", default=1.0),
        branch_scale=reader.positive_number("residual_multiplier", default=1.0),
        logit_divisor=reader.positive_number("logits_scaling", default=1.0),
    )
