"""Attention whose scores are squeezed into a range before the softmax, written out: torch's own has no such step."""

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
    """[..., heads, queries, head_dim] over keys and values [..., kv_heads, keys, head_dim].

    A score s counts as softcap * tanh(s / softcap). `mask` is additive; `is_causal` wants as many queries as keys.
    """
    shape = queries.shape
    # Heads that share keys are taken as that many more queries, so that no key is copied.
    grouped = queries.reshape(*shape[:-3], keys.shape[-3], -1, shape[-2], shape[-1])
    scores = torch.matmul(grouped, keys.unsqueeze(-3).transpose(-1, -2)).float()
    scores.mul_(scale / softcap).tanh_().mul_(softcap)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(later, float("-inf"))
    elif mask is not None:
        scores.add_(mask.unsqueeze(-3))
    return torch.matmul(scores.softmax(-1).to(values.dtype), values.unsqueeze(-3)).reshape(shape)
