"""Embeddings in another dtype than the model's."""

from __future__ import annotations

import pytest
import torch

from engine.models.embedding import TokenEmbedding

TABLE = torch.arange(12.0).view(4, 3) / 3


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [None, 2.5])
def test_rows_come_in_the_models_dtype_times_the_scale(stored: torch.dtype, scale: float | None) -> None:
    table = TABLE.to(stored)
    embedding = TokenEmbedding(table, torch.float32, scale)
    token_ids, out = torch.tensor([3, 0, 3]), torch.empty(3, 3)

    embedding.into(token_ids, out)

    assert torch.equal(out, table.float()[token_ids] * (scale or 1.0))
    assert torch.equal(embedding.of(token_ids.view(3, 1)), out.view(3, 1, 3))
    assert embedding.of(token_ids).dtype == torch.float32


def test_the_scale_is_rounded_to_the_models_dtype() -> None:
    assert TokenEmbedding(TABLE, torch.bfloat16, 25.298).scale == 25.25
    assert TokenEmbedding(TABLE, torch.float32).scale == 1.0
