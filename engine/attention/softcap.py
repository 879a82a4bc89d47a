"""Attention with capped scores before the softmax, which torch's own attention does not support."""

from __future__ import annotations

import torch


def softcapped_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    scale: float,
    softcap: float,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """Compute attention where a score s becomes softcap * tanh(s / softcap).

    Args:
        queries: [..., heads, queries, head_dim].
        keys: [..., kv_heads, keys, head_dim].
        values: [..., kv_heads, keys, head_dim].
        scale: Factor of the scores before the cap.
        softcap: Cap of the scores.
        mask: Additive mask.
        is_causal: True for a causal mask; needs as many queries as keys.

    Returns:
        [..., heads, queries, head_dim].
    """
    shape = queries.shape
    # Heads that share a KV head count as additional queries, so that no key is copied.
    grouped = queries.reshape(*shape[:-3], keys.shape[-3], -1, shape[-2], shape[-1])
    scores = torch.matmul(grouped, keys.unsqueeze(-3).transpose(-1, -2)).float()
    scores.mul_(scale / softcap).tanh_().mul_(softcap)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(later, float("-inf"))
    elif mask is not None:
        scores.add_(mask.unsqueeze(-3))
    return torch.matmul(scores.softmax(-1).to(values.dtype), values.unsqueeze(-3)).reshape(shape)
