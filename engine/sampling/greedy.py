"""Greedy choice: the largest logit of each row, for sequences that need nothing else."""

from __future__ import annotations

import torch

from engine.protocol import SamplingParams
from engine.sampling.device_choice import needs_no_host


def is_greedy(params: SamplingParams) -> bool:
    """Return whether the token is the largest unmodified logit and no logprobs are requested."""
    return params.temperature == 0.0 and needs_no_host(params)


def largest_tokens(logits: torch.Tensor) -> tuple[list[int], list[bool]]:
    """Return the largest logit's token for each row of float32 [N, vocab], the lowest id among equals.

    Returns:
        Token ids, and True for each row that has a NaN or no finite number.
    """
    if logits.device.type == "cpu":
        # numpy takes a tenth of the time of torch's search on a CPU; both put NaN above everything.
        rows = logits.numpy()
        chosen = rows.argmax(-1)
        token_ids: list[int] = chosen.tolist()
        values: list[float] = [rows.item(row, token_id) for row, token_id in enumerate(token_ids)]
    else:
        largest, found = logits.max(-1)
        token_ids, values = found.tolist(), largest.tolist()
    return token_ids, [not value > float("-inf") for value in values]
