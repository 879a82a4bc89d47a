"""Phi-3 and 4: projections saved fused, one sliding window for all layers or none, rotation of a part of each head."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "Phi3ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """What a Phi-3 config adds to the shared fields. Raises ModelConfigError."""
    window = reader.positive_integer("sliding_window") if reader.has("sliding_window") else None
    return ModelTraits(
        has_fused_projections=True,
        can_rotate_partly=True,
        # Published before transformers knew the family, with code that computes what this one does.
        ignores_auto_map=True,
        sliding_windows=(window,) * reader.num_layers(),
    )
