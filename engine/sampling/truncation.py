"""Top-k, top-p and min-p as one list of surviving tokens per row.

Each of the three keeps the tokens above some value, so together they keep a prefix of the tokens sorted by logit.
Usually a few dozen of many thousands survive. The search starts among the most likely ones and extends to the
whole vocabulary only for rows whose prefix does not end there. Tokens of equal logit survive or drop out together, so
the result does not depend on the order of equal values in a sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from engine.protocol import SamplingParams
from engine.sampling.transfer import to_device

_FIRST_CANDIDATES = 64


def has_truncation(params: SamplingParams) -> bool:
    """Return whether some tokens may be cut."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def surviving_tokens(logits: torch.Tensor, params: Sequence[SamplingParams]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the survivors of truncation: top-k, then top-p among its survivors, then min-p.

    Args:
        logits: Tempered logits [N, vocab].
        params: Parameters of each row.

    Returns:
        Tempered logits [N, K] with -inf for cut tokens, and the token ids int64 [N, K].
    """
    values, token_ids, is_open = likely_survivors(logits, params)
    if bool(is_open.any()):
        values, token_ids = logits.sort(descending=True)
        values = values.masked_fill_(~_is_retained(values, logits, params), float("-inf"))
    return values, token_ids


def likely_survivors(
    logits: torch.Tensor, params: Sequence[SamplingParams]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the survivors among the most likely tokens, without synchronization.

    Args:
        logits: Tempered logits [N, vocab].
        params: Parameters of each row.

    Returns:
        Tempered logits [N, K] with -inf for cut tokens, token ids int64 [N, K], and bool [N]: True where more tokens
        may survive.
    """
    vocab_size = logits.shape[1]
    width = min(vocab_size, max(_FIRST_CANDIDATES, 1 + max(p.top_k for p in params)))
    values, token_ids = logits.topk(width)
    is_retained = _is_retained(values, logits, params)
    is_open = is_retained[:, -1] if width < vocab_size else torch.zeros_like(is_retained[:, -1])
    return values.masked_fill_(~is_retained, float("-inf")), token_ids, is_open


def _is_retained(values: torch.Tensor, logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Return bool [N, K]: True where `values`, the K largest of each row's logits in descending order, survive."""
    num_candidates, vocab_size = values.shape[1], logits.shape[1]
    device = values.device
    last_of_top_k = to_device(
        [(p.top_k if 0 < p.top_k <= num_candidates else num_candidates) - 1 for p in params], torch.int64, device
    )
    is_retained = values >= values.gather(1, last_of_top_k.unsqueeze(1))
    if any(p.top_p < 1.0 for p in params):
        has_top_k = to_device([0 < p.top_k < vocab_size for p in params], torch.bool, device)
        retained_values = values.masked_fill(~is_retained, float("-inf"))
        total = torch.where(has_top_k, retained_values.logsumexp(-1), logits.logsumexp(-1)).unsqueeze(1)
        probabilities = (retained_values - total).double().exp()
        mass_before = probabilities.cumsum(-1) - probabilities
        top_p = to_device([p.top_p for p in params], torch.float64, device).unsqueeze(1)
        # The most likely token always survives, also with a top_p of 0.
        num_retained = (is_retained & (mass_before < top_p)).sum(-1, keepdim=True).clamp_(min=1)
        is_retained &= values >= values.gather(1, num_retained - 1)
    if any(p.min_p > 0.0 for p in params):
        least = [math.log(p.min_p) if p.min_p > 0 else -math.inf for p in params]
        distance = to_device(least, torch.float32, device)
        is_retained &= values >= values[:, :1] + distance.unsqueeze(1)
    return is_retained
