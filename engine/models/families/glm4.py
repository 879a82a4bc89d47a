"""GLM-4: norms around both branches, half of each head rotates, gate and up in one tensor."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader

ARCHITECTURE = "Glm4ForCausalLM"


def read_traits(reader: ConfigReader) -> ModelTraits:
    """Read the traits of a GLM-4 config. Raises ModelConfigError."""
    return ModelTraits(
        qkv_bias=reader.boolean("attention_bias", default=True),
        norms="around",
        norm_names=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
        has_fused_gate_up=True,
        can_rotate_partly=True,
        default_rotated_share=0.5,
        has_adjacent_pairs=True,
        sliding_windows=(None,) * reader.num_layers(),
    )
