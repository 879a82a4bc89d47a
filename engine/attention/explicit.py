"""Attention with capped scores or with sinks, which torch's own attention does not support."""

from __future__ import annotations

import torch

_MAX_SCORES = 1 << 25
"""Largest number of scores that exist at a time; longer prompts are computed in parts."""


def explicit_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """Compute attention score by score.

    Args:
        queries: [..., heads, queries, head_dim].
        keys: [..., kv_heads, keys, head_dim].
        values: [..., kv_heads, keys, head_dim].
        scale: Factor of the scores before the cap.
        softcap: Cap: a score s becomes softcap * tanh(s / softcap); None: no cap.
        sinks: Scores without a value, which broadcast to [..., heads, queries, 1]; None: no sinks.
        mask: Additive mask.
        is_causal: True for a causal mask; needs as many queries as keys.

    Returns:
        [..., heads, queries, head_dim].
    """
    shape, num_kv_heads, num_keys = queries.shape, keys.shape[-3], keys.shape[-2]
    # Heads that share a KV head count as additional queries, so that no key is copied.
    grouped = queries.reshape(*shape[:-3], num_kv_heads, -1, shape[-2], shape[-1])
    grouped_sinks = None
    if sinks is not None:
        grouped_sinks = sinks.float().expand(*shape[:-1], 1).reshape(*grouped.shape[:-1], 1)
    if is_causal:
        later = torch.ones(shape[-2], num_keys, dtype=torch.bool, device=queries.device).triu_(1)
        mask = torch.zeros(later.shape, device=queries.device).masked_fill_(later, float("-inf"))
    attended = torch.empty(grouped.shape, dtype=values.dtype, device=queries.device)
    num_rows = max(1, _MAX_SCORES * shape[-2] // max(1, grouped.numel() // shape[-1] * num_keys))
    for start in range(0, shape[-2], num_rows):
        rows = slice(start, start + num_rows)
        scores = torch.matmul(grouped[..., rows, :], keys.unsqueeze(-3).transpose(-1, -2)).float().mul_(scale)
        if softcap is not None:
            scores.div_(softcap).tanh_().mul_(softcap)
        if mask is not None:
            scores.add_((mask if mask.shape[-2] == 1 else mask[..., rows, :]).unsqueeze(-3))
        shares = softmax_with_sinks(scores, None if grouped_sinks is None else grouped_sinks[..., rows, :])
        attended[..., rows, :] = torch.matmul(shares.to(values.dtype), values.unsqueeze(-3))
    return attended.reshape(shape)


def softmax_with_sinks(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Return the softmax of float32 scores [..., keys], with sinks [..., 1] in the sum; the scores are overwritten."""
    if sinks is None:
        return scores.softmax(-1)
    largest = torch.maximum(scores.amax(-1, keepdim=True), sinks)
    weights = scores.sub_(largest).exp_()
    return weights.div_(weights.sum(-1, keepdim=True) + (sinks - largest).exp())
