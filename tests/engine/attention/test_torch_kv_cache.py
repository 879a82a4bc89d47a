"""An int8 pool stays within half a scale of what was stored, and attention over it near the exact one."""

from __future__ import annotations

import pytest
import torch

from engine.attention.base import AttentionSpec
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import AttentionScratch, QuantizedKVCache
from loadtests.harness.measures import resident_bytes
from tests.engine.attention.reference import make_batch, reference_attention

CPU = torch.device("cpu")


def stored(magnitude: float = 1.0) -> tuple[QuantizedKVCache, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A pool of 12 slots, and keys, values and slots written to it."""
    generator = torch.Generator().manual_seed(5)
    cache = QuantizedKVCache((12, 2, 8), torch.float32, CPU)
    keys, values = (torch.randn(4, 2, 8, generator=generator) * magnitude for _ in range(2))
    slots = torch.tensor([7, 2, 3, 11])
    cache.write(keys, values, slots)
    return cache, keys, values, slots


@pytest.mark.parametrize("magnitude", [1e-4, 1.0, 1e4])
def test_no_number_moves_by_more_than_half_its_scale(magnitude: float) -> None:
    cache, keys, values, slots = stored(magnitude)

    read_keys, read_values = cache.gather(slots, AttentionScratch())

    for source, read, scales in ((keys, read_keys, cache.key_scales), (values, read_values, cache.value_scales)):
        assert ((read - source).abs() <= scales[slots].unsqueeze(2) * 0.5001).all()
        assert torch.allclose(scales[slots], source.abs().amax(2) / 127)


def test_each_head_of_each_position_has_its_own_scale() -> None:
    cache = QuantizedKVCache((2, 2, 8), torch.float32, CPU)
    keys = torch.ones(2, 2, 8) * torch.tensor([[1.0, 1e3], [1e-3, 1e6]]).unsqueeze(2)
    cache.write(keys, keys, torch.tensor([0, 1]))

    assert torch.allclose(cache.span(0, 2, AttentionScratch())[0], keys)


def test_spans_and_gathers_read_the_same() -> None:
    cache, *_ = stored()
    spanned = [tensor.clone() for tensor in cache.span(2, 6, AttentionScratch())]

    gathered = cache.gather(torch.arange(2, 8), AttentionScratch())

    assert all(torch.equal(one, other) for one, other in zip(spanned, gathered, strict=True))


def test_positions_of_zeros_stay_zeros() -> None:
    cache = QuantizedKVCache((3, 1, 4), torch.float32, CPU)
    cache.write(torch.zeros(1, 1, 4), torch.zeros(1, 1, 4), torch.tensor([1]))

    assert not cache.span(0, 3, AttentionScratch())[0].any()


@pytest.mark.parametrize("is_scattered", [False, True])
@pytest.mark.parametrize("window", [None, 12])
def test_attention_over_int8_is_near_the_exact_one(is_scattered: bool, window: int | None) -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3, sliding_window=window)
    rows = [(20, 1), (33, 1), (8, 4), (0, 5), (300, 1)]
    batch = make_batch(spec, rows, block_size=4, seed=2, is_scattered=is_scattered)
    backend = TorchAttention(CPU, has_int8_kv=True)
    cache = backend.allocate(batch.num_blocks, 4, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)

    attended = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)

    assert (attended - reference_attention(batch, spec)).abs().max() < 0.03


def test_bfloat16_models_read_bfloat16() -> None:
    cache = QuantizedKVCache((3, 1, 4), torch.bfloat16, CPU)
    cache.write(torch.ones(1, 1, 4).bfloat16(), torch.ones(1, 1, 4).bfloat16(), torch.tensor([1]))

    assert cache.span(1, 1, AttentionScratch())[0].dtype == torch.bfloat16


@pytest.mark.parametrize("has_int8_kv", [False, True])
def test_small_layers_take_the_memory_of_the_slots_that_are_written(has_int8_kv: bool) -> None:
    spec = AttentionSpec(4, 2, 64, 1.0)
    before = resident_bytes()
    caches = TorchAttention(CPU, has_int8_kv=has_int8_kv).allocate_layers(64, 16, [spec] * 32, torch.float32)
    for cache in caches:
        cache.write(torch.ones(1, 2, 64), torch.ones(1, 2, 64), torch.tensor([0]))

    assert resident_bytes() - before < 16 << 20  # a page of 2 MiB for each array would be 128 MiB and more
