"""Qwen3.5-MoE: Qwen3.5 with experts in every layer, one of them shared by all tokens."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.qwen import qwen3_5
from engine.models.families.qwen.experts import read_qwen_experts

ARCHITECTURE = "Qwen3_5MoeForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen3.5-MoE text config. Raises ModelConfigError."""
    shared_size = reader.positive_integer("shared_expert_intermediate_size")
    experts = read_qwen_experts(reader, shared_size=shared_size, is_normalized=True)
    return replace(qwen3_5.read_traits(reader), experts=experts)
