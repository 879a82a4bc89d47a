"""Capped scores agree with the formula for every way the torch backend groups its sequences."""

from __future__ import annotations

import pytest
import torch

from engine.attention.base import AttentionSpec
from engine.attention.torch_attention import TorchAttention
from tests.engine.attention.reference import make_batch, reference_attention

MIXES = {
    "one decode row": [(19, 1)],
    "decode rows gathered together": [(5, 1), (9, 1), (40, 1)],
    "prefill from nothing": [(0, 23)],
    "decode, verification and prefill": [(40, 1), (9, 4), (0, 21), (16, 17), (3, 1)],
}


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("window", [None, 7], ids=["full", "window"])
@pytest.mark.parametrize("is_scattered", [False, True], ids=["consecutive", "scattered"])
def test_capped_scores_equal_the_reference(rows: list[tuple[int, int]], window: int | None, is_scattered: bool) -> None:
    spec = AttentionSpec(6, 2, head_dim=8, scale=2.0, sliding_window=window, softcap=1.5)
    batch = make_batch(spec, rows, block_size=4, seed=3, is_scattered=is_scattered)
    backend = TorchAttention(torch.device("cpu"))
    cache = backend.allocate(batch.num_blocks, batch.context.block_size, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)

    attended = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)

    assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5
