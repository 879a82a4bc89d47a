"""Gemma 2: attention scores and logits are capped; every other layer sees a sliding window."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.families.gemma.common import read_gemma_traits

ARCHITECTURE = "Gemma2ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Gemma 2 config. Raises ModelConfigError."""
    return read_gemma_traits(reader, full_attention_every=2, attention_softcap=50.0, logit_softcap=30.0)
