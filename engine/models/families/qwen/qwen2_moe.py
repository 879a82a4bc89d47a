"""Qwen2-MoE: Qwen2 with experts, one of them shared by all tokens."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.qwen import qwen2
from engine.models.families.qwen.experts import read_qwen_experts

ARCHITECTURE = "Qwen2MoeForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen2-MoE config. Raises ModelConfigError."""
    shared_size = reader.positive_integer("shared_expert_intermediate_size")
    experts = read_qwen_experts(reader, shared_size=shared_size)
    has_bias = reader.boolean("qkv_bias", default=True)
    return replace(qwen2.read_traits(reader), qkv_bias=has_bias, experts=experts)
