"""OLMo 3: OLMo 2 with a sliding window in three of four layers, whose rope is never scaled."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_alternating_windows
from engine.models.families import olmo2

ARCHITECTURE = "Olmo3ForCausalLM"
_PERIOD = 4
_DEFAULT_THETA = 500_000.0


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of an OLMo 3 config. Raises ModelConfigError."""
    return replace(
        olmo2.read_traits(reader),
        has_local_rope=True,
        default_theta=_DEFAULT_THETA,
        sliding_windows=read_alternating_windows(reader, _PERIOD),
    )
