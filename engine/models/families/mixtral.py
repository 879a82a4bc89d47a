"""Mixtral: Mistral with experts in every layer."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ExpertTraits, ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families import mistral

ARCHITECTURE = "MixtralForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Mixtral config. Raises ModelConfigError."""
    experts = ExpertTraits(
        module="block_sparse_moe",
        projections=("w1", "w3", "w2"),
        num_experts=reader.positive_integer("num_local_experts"),
        num_chosen=reader.positive_integer("num_experts_per_tok"),
        size=reader.positive_integer("intermediate_size"),
        is_normalized=True,
        layers=frozenset(range(reader.num_layers())),
    )
    return replace(mistral.read_traits(reader), experts=experts)
