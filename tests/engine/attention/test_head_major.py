"""A pool that lies head by head, as compiled steps read it, is what torch reads too."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.base import AttentionSpec
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import AttentionScratch, HeadMajorKVCache, SlotPlaces
from loadtests.harness.measures import resident_bytes
from tests.engine.attention.reference import Batch, make_batch, reference_attention

CPU = torch.device("cpu")


def attend(batch: Batch, spec: AttentionSpec, dtype: torch.dtype) -> torch.Tensor:
    backend = TorchAttention(CPU)
    backend.head_major = dtype
    cache = backend.allocate(batch.num_blocks, batch.context.block_size, spec, torch.float32)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)
    with torch.inference_mode():
        return backend.forward(batch.queries, batch.keys, batch.values, cache, spec)


@settings(max_examples=60, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (4, 2), (6, 3)]),
    window=st.sampled_from([None, 5, 16]),
    rows=st.lists(st.tuples(st.integers(0, 70), st.sampled_from([1, 1, 1, 2, 23])), min_size=1, max_size=6),
    block_size=st.sampled_from([4, 16]),
    seed=st.integers(0, 10_000),
    is_scattered=st.booleans(),
)
def test_ragged_batches_equal_the_reference(
    heads: tuple[int, int],
    window: int | None,
    rows: list[tuple[int, int]],
    block_size: int,
    seed: int,
    is_scattered: bool,
) -> None:
    spec = AttentionSpec(*heads, head_dim=8, scale=0.3, sliding_window=window)
    batch = make_batch(spec, rows, block_size=block_size, seed=seed, is_scattered=is_scattered)

    assert (attend(batch, spec, torch.float32) - reference_attention(batch, spec)).abs().max() < 1e-5
    # Scores are off by a few thousandths, as keys are.
    assert (attend(batch, spec, torch.bfloat16) - reference_attention(batch, spec)).abs().max() < 0.1


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def cache(request: pytest.FixtureRequest) -> HeadMajorKVCache:
    return HeadMajorKVCache(6, 4, AttentionSpec(2, 2, head_dim=8, scale=1.0), request.param, SlotPlaces())


def test_every_way_to_read_gives_what_was_stored(cache: HeadMajorKVCache) -> None:
    keys, values = torch.randn(2, 7, 2, 8, generator=torch.Generator().manual_seed(1)).unbind()
    slots = torch.tensor([21, 3, 9, 10, 11, 12, 13])
    cache.write(keys, values, slots)
    scratch = AttentionScratch()

    expected = cache.stored(keys, values, slots, scratch)

    for found, of_slots in (
        (cache.gather(slots, scratch), slice(None)),
        (cache.span(9, 5, scratch), slice(2, None)),
    ):
        for one, known in zip(found, expected, strict=True):
            assert one.dtype == torch.float32
            assert torch.equal(one, known[of_slots])
    for one, known in zip(cache.gather_blocks(torch.tensor([5, 0]), 4, scratch), expected, strict=True):
        assert torch.equal(one[[1, 7]], known[:2])
        assert not one[[0, 2, 3, 4, 5, 6]].any()


def test_what_is_stored_is_off_by_rounding_alone(cache: HeadMajorKVCache) -> None:
    keys = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(2))
    stored, _ = cache.stored(keys, keys, torch.arange(5), AttentionScratch())
    assert torch.equal(stored, keys.to(cache.keys.dtype).float())


def test_blocks_are_cleared_alone(cache: HeadMajorKVCache) -> None:
    ones = torch.ones(24, 2, 8)
    cache.write(ones, ones, torch.arange(24))
    cache.clear(torch.tensor([1, 4]), 4)
    keys, values = cache.span(0, 24, AttentionScratch())
    for found in (keys, values):
        assert found.sum((1, 2)).view(6, 4)[:, 0].tolist() == [16.0, 0.0, 16.0, 16.0, 0.0, 16.0]


def test_places_of_a_step_are_not_taken_for_those_of_other_slots() -> None:
    places, step = SlotPlaces(), torch.tensor([5, 6])
    places.begin(step)
    assert [found.tolist() for found in places.of(step, 4)] == [[1, 1], [1, 2], [0, 1], [1, 0]]
    assert [found.tolist() for found in places.of(torch.tensor([9]), 4)] == [[2], [1], [0], [1]]
    step.fill_(8)
    places.begin(step)
    assert [found.tolist() for found in places.of(step, 4)][:2] == [[2, 2], [0, 0]]


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_pool_whose_memory_is_given_back_reads_as_zeros_and_can_be_written_again(dtype: torch.dtype) -> None:
    spec = AttentionSpec(2, 2, head_dim=64, scale=1.0)
    cache = HeadMajorKVCache(4096, 16, spec, dtype, SlotPlaces())
    keys, values = torch.randn(2, 4096 * 16, 2, 64, generator=torch.Generator().manual_seed(1)).unbind()
    cache.write(keys, values, torch.arange(4096 * 16))
    before = resident_bytes()

    cache.release()

    assert before - resident_bytes() > cache.keys.numel() * cache.keys.itemsize
    slots = torch.arange(100, 120)
    assert not any(found.any() for found in cache.gather(slots, AttentionScratch()))
    cache.write(keys[:20], values[:20], slots)
    found = cache.gather(slots, AttentionScratch())
    known = cache.stored(keys[:20], values[:20], slots, AttentionScratch())
    assert all(torch.equal(one, other) for one, other in zip(found, known, strict=True))
