"""EXAONE 4: norms after each branch; layers with full attention do not rotate where others have a sliding window."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_alternating_windows

ARCHITECTURE = "Exaone4ForCausalLM"
_PERIOD = 4


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of an EXAONE 4 config. Raises ModelConfigError."""
    windows: tuple[int | None, ...] = (None,) * reader.num_layers()
    unrotated: frozenset[int] = frozenset()
    if reader.has("sliding_window"):
        if not reader.strings("layer_types"):
            raise reader.error("layer_types", "is required beside sliding_window")
        windows = read_alternating_windows(reader, _PERIOD)
        unrotated = frozenset(layer for layer, window in enumerate(windows) if window is None)
    return ModelTraits(qk_norm="each_head", norms="after", unrotated_layers=unrotated, sliding_windows=windows)
