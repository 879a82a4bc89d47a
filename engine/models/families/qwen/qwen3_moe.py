"""Qwen3-MoE: Qwen3 with experts."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.qwen import qwen3
from engine.models.families.qwen.experts import read_qwen_experts

ARCHITECTURE = "Qwen3MoeForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen3-MoE config. Raises ModelConfigError."""
    return replace(qwen3.read_traits(reader), experts=read_qwen_experts(reader))
