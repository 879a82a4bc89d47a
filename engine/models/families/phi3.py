"""Phi-3 and 4: fused projections, one sliding window for all layers or none, partial rotation of each head."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "Phi3ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Phi-3 config. Raises ModelConfigError."""
    window = reader.positive_integer("sliding_window") if reader.has("sliding_window") else None
    return ModelTraits(
        has_fused_qkv=True,
        has_fused_gate_up=True,
        can_rotate_partly=True,
        # The first checkpoints came with code of their own, which computes the same as this family.
        ignores_auto_map=True,
        sliding_windows=(window,) * reader.num_layers(),
    )
