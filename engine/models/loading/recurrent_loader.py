"""Loader of a layer's gated delta net."""

from __future__ import annotations

import torch

from engine.models.config.config import ModelConfig, RecurrentTraits
from engine.models.layer_ops import LayerOps
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.loading.expert_loader import ProjectionSource
from engine.models.recurrent_layer import GatedDeltaNet


def load_gated_delta_net(
    prefix: str, traits: RecurrentTraits, config: ModelConfig, source: ProjectionSource, ops: LayerOps
) -> GatedDeltaNet:
    """Return the mixer under a prefix.

    Raises:
        CheckpointError: Tensors are missing or misshapen.
    """
    num_heads = traits.num_value_heads
    size = num_heads * traits.value_dim
    convolution = source.copy(f"{prefix}.conv1d.weight", traits.num_channels, 1, traits.window)
    qkv, gate = _qkv_and_gate(prefix, traits, config.hidden_size, source)
    return GatedDeltaNet(
        traits=traits,
        qkv=qkv,
        gate=gate,
        rates_decays=_rates_decays(prefix, traits, config.hidden_size, source),
        convolution=convolution.squeeze(1).t().contiguous(),
        decay_rate=source.copy(f"{prefix}.A_log", num_heads).float().exp_().neg_(),
        decay_bias=source.copy(f"{prefix}.dt_bias", num_heads).float(),
        norm=RMSNorm(source.copy(f"{prefix}.norm.weight", traits.value_dim).float(), config.rms_norm_eps),
        output=source.linear([f"{prefix}.out_proj"], config.hidden_size, size, has_bias=False),
        advance=ops.advance,
    )


def _qkv_and_gate(
    prefix: str, traits: RecurrentTraits, hidden_size: int, source: ProjectionSource
) -> tuple[Linear, Linear]:
    """Return the projections to queries, keys and values, and to the gate.

    In a tensor by key head, the rows of a key head are its queries, its keys, and values and gates of its value heads.
    """
    if traits.layout != "by_key_head":
        size = traits.num_value_heads * traits.value_dim
        return (
            source.linear([f"{prefix}.in_proj_qkv"], traits.num_channels, hidden_size, has_bias=False),
            source.linear([f"{prefix}.in_proj_z"], size, hidden_size, has_bias=False),
        )
    num_keys, shared = traits.num_key_heads, traits.num_value_heads // traits.num_key_heads
    sizes = [traits.key_dim, traits.key_dim, shared * traits.value_dim, shared * traits.value_dim]
    queries, keys, values, gates = _rows_by_part(num_keys, sizes)
    rows = [torch.cat((queries, keys, values)), gates]
    qkv, gate = source.split(f"{prefix}.in_proj_qkvz", num_keys * sum(sizes), hidden_size, rows)
    return qkv, gate


def _rates_decays(prefix: str, traits: RecurrentTraits, hidden_size: int, source: ProjectionSource) -> Linear:
    """Return the projection to rates and decays."""
    if traits.layout == "plain":
        names = [f"{prefix}.in_proj_b", f"{prefix}.in_proj_a"]
        return source.linear(names, traits.num_value_heads, hidden_size, has_bias=False)
    shared = traits.num_value_heads // traits.num_key_heads
    order = torch.cat(_rows_by_part(traits.num_key_heads, [shared, shared]))
    (found,) = source.split(f"{prefix}.in_proj_ba", 2 * traits.num_value_heads, hidden_size, [order])
    return found


def _rows_by_part(num_heads: int, sizes: list[int]) -> list[torch.Tensor]:
    """Return the indices of each part's rows in a tensor that holds all parts of one head after the other."""
    rows = torch.arange(num_heads * sum(sizes)).view(num_heads, -1)
    return [part.flatten() for part in torch.split(rows, sizes, 1)]
