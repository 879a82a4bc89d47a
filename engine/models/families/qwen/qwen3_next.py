"""Qwen3-Next: Qwen3.5-MoE whose checkpoints fuse the projections of the gated delta net by key head."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.qwen import qwen3_5_moe

ARCHITECTURE = "Qwen3NextForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen3-Next config. Raises ModelConfigError."""
    traits = qwen3_5_moe.read_traits(reader)
    # A key of config.json that is made from a GGUF file.
    is_split = reader.boolean("linear_qkvz_is_split", default=False)
    layout: Literal["rates_by_key_head", "by_key_head"] = "rates_by_key_head" if is_split else "by_key_head"
    recurrent = None if traits.recurrent is None else replace(traits.recurrent, layout=layout)
    return replace(traits, recurrent=recurrent)
