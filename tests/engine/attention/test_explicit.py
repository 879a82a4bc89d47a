"""Capped scores and sinks agree with the formula for every way the torch backend groups its sequences."""

from __future__ import annotations

import pytest
import torch

from engine.attention import explicit
from engine.attention.base import AttentionSpec
from engine.attention.explicit import explicit_attention
from engine.attention.torch_attention import TorchAttention
from tests.engine.attention.reference import make_batch, reference_attention

SINKS = torch.tensor([-1.0, 3.0, 0.5, 9.0, 0.0, 2.0])
MIXES = {
    "one decode row": [(19, 1)],
    "decode rows gathered together": [(5, 1), (9, 1), (40, 1)],
    "prefill from nothing": [(0, 23)],
    "decode, verification and prefill": [(40, 1), (9, 4), (0, 21), (16, 17), (3, 1)],
}


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("window", [None, 7], ids=["full", "window"])
@pytest.mark.parametrize("is_scattered", [False, True], ids=["consecutive", "scattered"])
@pytest.mark.parametrize(("softcap", "sinks"), [(1.5, None), (None, SINKS), (1.5, SINKS)], ids=["cap", "sinks", "both"])
def test_attention_equals_the_reference(
    rows: list[tuple[int, int]],
    window: int | None,
    is_scattered: bool,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> None:
    spec = AttentionSpec(6, 2, head_dim=8, scale=2.0, sliding_window=window, softcap=softcap, sinks=sinks)
    batch = make_batch(spec, rows, block_size=4, seed=3, is_scattered=is_scattered)
    backend = TorchAttention(torch.device("cpu"))
    cache = backend.allocate(batch.num_blocks, batch.context.block_size, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)

    attended = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)

    assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_long_prompt_in_parts_equals_one_part(is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(1, 6, 11, 8, generator=generator)
    keys, values = torch.randn(2, 1, 2, 11, 8, generator=generator)
    mask = None if is_causal else torch.randn(11, 11, generator=generator)
    settings = {"scale": 0.5, "softcap": 1.5, "sinks": SINKS.view(-1, 1, 1), "mask": mask, "is_causal": is_causal}
    whole = explicit_attention(queries, keys, values, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(explicit, "_MAX_SCORES", 3 * 6 * 11)
    parts = explicit_attention(queries, keys, values, **settings)  # type: ignore[arg-type]

    assert torch.allclose(parts, whole, atol=1e-6)
