"""Log probabilities of sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.protocol import TokenLogprobs


def token_logprobs(logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> list[TokenLogprobs]:
    """Return the log probabilities of the chosen token and the `num_top[n]` most likely ones of each row [N, vocab].

    They come from the model's own distribution, before bias, penalties, temperature and truncation.
    """
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device).unsqueeze(1)).flatten().tolist()
    width = min(max(num_top), logits.shape[1])
    if width == 0:
        return [TokenLogprobs(logprob=logprob) for logprob in chosen]
    values, ids = logprobs.topk(width)
    return [
        TokenLogprobs(logprob=logprob, top=_most_likely_first(row_ids, row_values)[:count])
        for logprob, row_ids, row_values, count in zip(chosen, ids.tolist(), values.tolist(), num_top, strict=True)
    ]


def _most_likely_first(ids: list[int], values: list[float]) -> list[tuple[int, float]]:
    return sorted(zip(ids, values, strict=True), key=lambda pair: (-pair[1], pair[0]))
