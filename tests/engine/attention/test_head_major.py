"""A pool that lies head by head, as compiled steps read it, is what torch reads too."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.base import AttentionSpec
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import AttentionScratch, BlockMemory, HeadMajorKVCache, SlotPlaces
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
    spec = AttentionSpec(2, 2, head_dim=8, scale=1.0)
    return HeadMajorKVCache(BlockMemory(6, 4, [spec], request.param), spec, SlotPlaces())


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


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "token-major"])
def test_a_pool_takes_the_memory_of_the_blocks_that_were_written(kind: str) -> None:
    backend = TorchAttention(CPU, has_int8_kv=kind == "int8")
    backend.head_major = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(kind)
    spec = AttentionSpec(4, 2, head_dim=64, scale=1.0)
    keys = torch.ones(16, 2, 64)
    backend.allocate_layers(64, 16, [spec], torch.float32)[0].write(keys, keys, torch.arange(16))  # torch's own buffers
    before = resident_bytes()

    caches = backend.allocate_layers(4096, 16, [spec] * 30, torch.float32)  # 1 GB in bfloat16
    allocated = resident_bytes() - before
    for cache in caches:
        cache.write(keys, keys, torch.arange(16))

    assert allocated < 4 << 20
    if backend.head_major is not None:
        assert resident_bytes() - before < 8 << 20


def test_layers_keep_their_own_numbers_in_the_memory_that_they_share() -> None:
    backend = TorchAttention(CPU)
    backend.head_major = torch.bfloat16
    kinds = (None, 5, None, 5)
    specs = [AttentionSpec(4, 2, head_dim=16, scale=1.0, sliding_window=window) for window in kinds]
    caches = backend.allocate_layers(6, 16, specs, torch.float32, num_window_blocks=3)
    slots = torch.arange(16, 48)
    for number, cache in enumerate(caches, 1):
        cache.write(torch.full((32, 2, 16), float(number)), torch.full((32, 2, 16), float(-number)), slots)
    caches[2].clear(torch.tensor([2]), 16)

    for number, (cache, window) in enumerate(zip(caches, kinds, strict=True), 1):
        assert cache.is_windowed == (window is not None)
        keys, values = cache.span(0, 48, AttentionScratch())
        expected = torch.tensor([0.0, number, 0.0 if number == 3 else number]).repeat_interleave(16)
        assert torch.equal(keys, expected.view(48, 1, 1).expand(48, 2, 16))
        assert torch.equal(values, -expected.view(48, 1, 1).expand(48, 2, 16))


def test_a_heads_keys_of_successive_blocks_are_spread_over_a_cores_cache() -> None:
    spec = AttentionSpec(9, 3, head_dim=64, scale=1.0)
    memory = BlockMemory(8, 16, [spec] * 30, torch.bfloat16)
    keys = HeadMajorKVCache(memory, spec, SlotPlaces()).keys
    places = {keys[block, 0].data_ptr() % 4096 for block in range(8)}
    assert len(places) == 2  # of 2 KiB each


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_pool_whose_memory_is_given_back_reads_as_zeros_and_can_be_written_again(dtype: torch.dtype) -> None:
    spec = AttentionSpec(2, 2, head_dim=64, scale=1.0)
    cache = HeadMajorKVCache(BlockMemory(4096, 16, [spec], dtype), spec, SlotPlaces())
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
