"""Sliding windows of a model's layers."""

from __future__ import annotations

from engine.models.config.config_reader import ConfigReader

_DEFAULT_WINDOW = 4096
_DEFAULT_MAX_WINDOW_LAYERS = 28


def read_layer_windows(reader: ConfigReader) -> tuple[int | None, ...]:
    """Read the windows of a Qwen model: from `layer_types`, or else for all layers from `max_window_layers` on.

    No layer has a window unless `use_sliding_window` is true.

    Returns:
        The window of each layer in tokens; None: full attention.

    Raises:
        ModelConfigError: A setting is wrong.
    """
    num_layers = reader.num_layers()
    layer_types = reader.strings("layer_types")
    if layer_types:
        _check_layer_types(reader, layer_types, num_layers)
    if not reader.boolean("use_sliding_window", default=False):
        if "sliding_attention" in layer_types:
            raise reader.error("layer_types", "has sliding_attention although use_sliding_window is false")
        return (None,) * num_layers
    window = reader.positive_integer("sliding_window", default=_DEFAULT_WINDOW)
    if layer_types:
        return tuple(window if kind == "sliding_attention" else None for kind in layer_types)
    first = reader.count("max_window_layers", default=_DEFAULT_MAX_WINDOW_LAYERS)
    return tuple(window if layer >= first else None for layer in range(num_layers))


def read_alternating_windows(reader: ConfigReader, full_attention_every: int) -> tuple[int | None, ...]:
    """Read windows from `layer_types`, or else give every `full_attention_every`-th layer full attention.

    Returns:
        The window of each layer in tokens; None: full attention.

    Raises:
        ModelConfigError: A setting is wrong.
    """
    num_layers = reader.num_layers()
    window = reader.positive_integer("sliding_window", default=_DEFAULT_WINDOW)
    layer_types = reader.strings("layer_types")
    if layer_types:
        _check_layer_types(reader, layer_types, num_layers)
        return tuple(window if kind == "sliding_attention" else None for kind in layer_types)
    return tuple(None if layer % full_attention_every == 0 else window for layer in range(1, num_layers + 1))


def _check_layer_types(reader: ConfigReader, layer_types: tuple[str, ...], num_layers: int) -> None:
    if len(layer_types) != num_layers:
        raise reader.error("layer_types", f"has {len(layer_types)} entries for {num_layers} layers")
    for kind in layer_types:
        if kind not in ("full_attention", "sliding_attention"):
            raise reader.error("layer_types", f"{kind!r} is not supported")
