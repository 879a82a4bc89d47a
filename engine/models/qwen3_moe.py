"""Qwen3-MoE: Qwen3 with experts."""

from __future__ import annotations

from dataclasses import replace

from engine.models import qwen3
from engine.models.config import ModelTraits
from engine.models.config_reader import ConfigReader
from engine.models.qwen_experts import read_qwen_experts

ARCHITECTURE = "Qwen3MoeForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """What a Qwen3-MoE config adds to the shared fields. Raises ModelConfigError."""
    return replace(qwen3.read_traits(reader), experts=read_qwen_experts(reader))
