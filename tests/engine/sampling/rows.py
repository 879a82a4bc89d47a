"""Short ways to write sampling parameters and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from engine.protocol import SamplingParams
from engine.sampling.sampler import SampleRow


def row(
    *,
    position: int = 10,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    drafts: Sequence[int] = (),
    allowed: torch.Tensor | None = None,
    **params: Any,
) -> SampleRow:
    """A row whose other keywords are sampling parameters."""
    return SampleRow(
        params=SamplingParams(**{"max_tokens": 100, **params}),
        position=position,
        prompt_token_ids=prompt,
        output_token_ids=output,
        draft_token_ids=drafts,
        allowed=allowed,
    )


def random_logits(num_seqs: int, vocab_size: int, seed: int = 3, spread: float = 2.0) -> torch.Tensor:
    """Normal logits [num_rows, vocab_size]."""
    return torch.randn(num_seqs, vocab_size, generator=torch.Generator().manual_seed(seed)) * spread
