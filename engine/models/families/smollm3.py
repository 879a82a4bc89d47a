"""SmolLM3: Llama whose every fourth layer does not rotate queries and keys."""

from __future__ import annotations

from dataclasses import replace

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_layer_windows
from engine.models.families import llama

ARCHITECTURE = "SmolLM3ForCausalLM"
_DEFAULT_PERIOD = 4
_DEFAULT_THETA = 2_000_000.0


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a SmolLM3 config. Raises ModelConfigError."""
    unrotated = _read_unrotated_layers(reader)
    windows = read_layer_windows(reader)
    if reader.boolean("use_sliding_window", default=False) and not reader.strings("layer_types"):
        # Without `layer_types` the window is that of the layers that do not rotate.
        window = reader.positive_integer("sliding_window")
        windows = tuple(window if layer in unrotated else None for layer in range(len(windows)))
    return replace(
        llama.read_traits(reader),
        is_tied_by_default=True,
        default_theta=_DEFAULT_THETA,
        unrotated_layers=unrotated,
        sliding_windows=windows,
    )


def _read_unrotated_layers(reader: ConfigReader) -> frozenset[int]:
    """Read `no_rope_layers`, whose zeros name these layers, or else every `no_rope_layer_interval`-th layer."""
    num_layers = reader.num_layers()
    rotates = reader.counts("no_rope_layers")
    if rotates:
        if len(rotates) < num_layers:
            raise reader.error("no_rope_layers", f"has {len(rotates)} entries for {num_layers} layers")
        return frozenset(layer for layer in range(num_layers) if not rotates[layer])
    period = reader.positive_integer("no_rope_layer_interval", default=_DEFAULT_PERIOD)
    return frozenset(layer for layer in range(num_layers) if (layer + 1) % period == 0)
