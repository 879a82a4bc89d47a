"""Qwen3.5: gated delta-net layers, and in every fourth layer attention with a gate on its output."""

from __future__ import annotations

from engine.models.config.config import ModelTraits, RecurrentTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "Qwen3_5ForCausalLM"
_DEFAULT_PERIOD = 4


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a Qwen3.5 text config. Raises ModelConfigError."""
    has_bias = reader.boolean("attention_bias", default=False)
    recurrent = RecurrentTraits(
        layers=_read_layers(reader),
        num_key_heads=reader.positive_integer("linear_num_key_heads"),
        num_value_heads=reader.positive_integer("linear_num_value_heads"),
        key_dim=reader.positive_integer("linear_key_head_dim"),
        value_dim=reader.positive_integer("linear_value_head_dim"),
        window=reader.positive_integer("linear_conv_kernel_dim", default=4),
        # A key of config.json that is made from a GGUF file.
        has_tiled_values=reader.boolean("linear_value_heads_are_tiled", default=False),
    )
    if recurrent.num_value_heads % recurrent.num_key_heads:
        raise reader.error("linear_num_value_heads", f"{recurrent.num_key_heads} key heads do not divide them")
    return ModelTraits(
        qkv_bias=has_bias,
        output_bias=has_bias,
        has_output_gate=True,
        qk_norm="each_head",
        norm_offset=1.0,
        can_rotate_partly=True,
        default_rotated_share=0.25,
        recurrent=recurrent,
        sliding_windows=(None,) * reader.num_layers(),
    )


def _read_layers(reader: ConfigReader) -> frozenset[int]:
    """Read the gated delta-net layers from `layer_types`, or else from the period of full attention."""
    num_layers = reader.num_layers()
    layer_types = reader.strings("layer_types")
    if not layer_types:
        period = reader.positive_integer("full_attention_interval", default=_DEFAULT_PERIOD)
        return frozenset(layer for layer in range(num_layers) if (layer + 1) % period)
    if len(layer_types) != num_layers:
        raise reader.error("layer_types", f"has {len(layer_types)} entries for {num_layers} layers")
    for kind in layer_types:
        if kind not in ("linear_attention", "full_attention"):
            raise reader.error("layer_types", f"{kind!r} is not supported")
    return frozenset(layer for layer, kind in enumerate(layer_types) if kind == "linear_attention")
