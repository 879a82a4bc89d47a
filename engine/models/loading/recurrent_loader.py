"""Loader of a layer's gated delta net."""

from __future__ import annotations

from engine.models.config.config import ModelConfig, RecurrentTraits
from engine.models.layer_ops import LayerOps
from engine.models.layers import RMSNorm
from engine.models.loading.expert_loader import ProjectionSource
from engine.models.recurrent_layer import GatedDeltaNet


def load_gated_delta_net(
    prefix: str, traits: RecurrentTraits, config: ModelConfig, source: ProjectionSource, ops: LayerOps
) -> GatedDeltaNet:
    """Return the mixer under a prefix.

    Raises:
        CheckpointError: Tensors are missing or misshapen.
    """
    hidden_size, num_heads = config.hidden_size, traits.num_value_heads
    size = num_heads * traits.value_dim
    convolution = source.copy(f"{prefix}.conv1d.weight", traits.num_channels, 1, traits.window)
    rates_decays = [f"{prefix}.in_proj_b", f"{prefix}.in_proj_a"]
    return GatedDeltaNet(
        traits=traits,
        qkv=source.linear([f"{prefix}.in_proj_qkv"], traits.num_channels, hidden_size, has_bias=False),
        gate=source.linear([f"{prefix}.in_proj_z"], size, hidden_size, has_bias=False),
        rates_decays=source.linear(rates_decays, num_heads, hidden_size, has_bias=False),
        convolution=convolution.squeeze(1).t().contiguous(),
        decay_rate=source.copy(f"{prefix}.A_log", num_heads).float().exp_().neg_(),
        decay_bias=source.copy(f"{prefix}.dt_bias", num_heads).float(),
        norm=RMSNorm(source.copy(f"{prefix}.norm.weight", traits.value_dim).float(), config.rms_norm_eps),
        output=source.linear([f"{prefix}.out_proj"], hidden_size, size, has_bias=False),
        advance=ops.advance,
    )
