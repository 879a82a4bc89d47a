"""Seed-OSS: a Llama with biases on queries, keys and values, and perhaps on the output projection."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "SeedOssForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Return what a Seed-OSS config adds to the shared fields.

    Raises:
        ModelConfigError: A field has a wrong type; the message names it.
    """
    return ModelTraits(
        qkv_bias=reader.boolean("attention_bias", default=True),
        output_bias=reader.boolean("attention_out_bias", default=False),
        mlp_bias=reader.boolean("mlp_bias", default=False),
        sliding_windows=(None,) * reader.num_layers(),
    )
