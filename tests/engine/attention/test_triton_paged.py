"""The Triton backend equals attention by definition, over whole keys, windows and caps."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.attention.base import AttentionSpec
from engine.attention.triton_paged import TritonPagedAttention
from tests.engine.attention.reference import make_batch, reference_attention

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)
CPU = torch.device("cpu")


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (7, None), (None, 2.0)])
def test_a_mixed_step_equals_the_reference(window: int | None, softcap: float | None) -> None:
    spec = AttentionSpec(4, 2, head_dim=16, scale=0.3, sliding_window=window, softcap=softcap)
    batch = make_batch(spec, [(20, 1), (5, 4), (0, 6)], block_size=16, seed=3, is_scattered=True)
    backend = TritonPagedAttention(device=CPU)
    cache = backend.allocate(batch.num_blocks, 16, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)
    found = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)
    assert (found - reference_attention(batch, spec)).abs().max() < 1e-4


@pytest.mark.parametrize("num_processors", [1, 64], ids=["one segment", "segments"])
@pytest.mark.parametrize("window", [None, 7])
def test_sinks_take_their_share_once(num_processors: int, window: int | None) -> None:
    sinks = torch.tensor([-1.0, 3.0, 0.5, 9.0])
    spec = AttentionSpec(4, 2, head_dim=16, scale=0.3, sliding_window=window, sinks=sinks)
    batch = make_batch(spec, [(300, 1), (5, 4), (0, 6)], block_size=16, seed=3, is_scattered=True)
    backend = TritonPagedAttention(device=CPU, num_processors=num_processors)
    cache = backend.allocate(batch.num_blocks, 16, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)
    found = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)
    assert (found - reference_attention(batch, spec)).abs().max() < 1e-4


def test_layers_of_different_windows_share_a_step() -> None:
    specs = [AttentionSpec(2, 1, head_dim=16, scale=0.3, sliding_window=window) for window in (None, 5)]
    batch = make_batch(specs[0], [(17, 1), (3, 2)], block_size=16, seed=4, is_scattered=True)
    backend = TritonPagedAttention(device=CPU)
    caches = [backend.allocate(batch.num_blocks, 16, spec, torch.float32) for spec in specs]
    backend.prepare(batch.context)
    for spec, cache in zip(specs, caches, strict=True):
        cache.write(batch.past_keys, batch.past_values, batch.past_slots)
        found = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)
        assert (found - reference_attention(batch, spec)).abs().max() < 1e-4
