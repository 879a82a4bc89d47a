"""The torch backend equals attention by the book on every mix of rows and block tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.base import AttentionSpec, ForwardContext
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import ReadableKVCache, TorchKVCache
from tests.engine.attention.reference import Batch, make_batch, reference_attention

CPU = torch.device("cpu")


def attend(batch: Batch, spec: AttentionSpec) -> tuple[torch.Tensor, TorchKVCache]:
    backend = TorchAttention(CPU)
    cache = backend.allocate(batch.num_blocks, batch.context.block_size, spec, torch.float32)
    assert isinstance(cache, TorchKVCache)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)
    with torch.inference_mode():
        return backend.forward(batch.queries, batch.keys, batch.values, cache, spec), cache


def make_spec(num_heads: int, num_kv_heads: int, window: int | None = None) -> AttentionSpec:
    return AttentionSpec(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=8, scale=0.3, sliding_window=window)


@settings(max_examples=120, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1), (6, 3)]),
    window=st.sampled_from([None, 1, 5, 16, 1000]),
    rows=st.lists(st.tuples(st.integers(0, 70), st.sampled_from([1, 1, 1, 2, 5, 23])), min_size=1, max_size=7),
    block_size=st.sampled_from([1, 4, 16]),
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
    spec = make_spec(*heads, window)
    batch = make_batch(spec, rows, block_size=block_size, seed=seed, is_scattered=is_scattered)

    attended, _ = attend(batch, spec)

    assert attended.shape == batch.queries.shape
    assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5


@pytest.mark.parametrize("is_scattered", [False, True])
@pytest.mark.parametrize("lengths", [[40], [3, 3, 3], [5, 300, 6, 310, 90]], ids=["one", "equal", "ragged"])
def test_pure_decode_equals_the_reference(lengths: list[int], is_scattered: bool) -> None:
    spec = make_spec(4, 2)
    rows = [(length, 1) for length in lengths]
    batch = make_batch(spec, rows, block_size=4, seed=1, is_scattered=is_scattered)

    assert (attend(batch, spec)[0] - reference_attention(batch, spec)).abs().max() < 1e-5


def test_layers_with_different_windows_share_a_step() -> None:
    batch = make_batch(make_spec(4, 2), [(30, 1), (12, 6), (9, 1)], block_size=4, seed=5, is_scattered=True)
    backend = TorchAttention(CPU)
    specs = [make_spec(4, 2, window) for window in (None, 7, None, 3)]
    caches = [backend.allocate(batch.num_blocks, 4, spec, torch.float32) for spec in specs]
    backend.prepare(batch.context)

    for spec, cache in zip(specs, caches, strict=True):
        cache.write(batch.past_keys, batch.past_values, batch.past_slots)
        attended = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)
        assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5


def test_new_keys_and_values_are_kept_for_the_next_step() -> None:
    spec = make_spec(2, 2)
    batch = make_batch(spec, [(6, 3), (0, 2)], block_size=4, seed=8, is_scattered=True)

    _, cache = attend(batch, spec)

    assert torch.equal(cache.keys[batch.context.slot_mapping], batch.keys)
    assert torch.equal(cache.values[batch.context.slot_mapping], batch.values)


def test_what_other_sequences_left_in_the_pool_is_never_seen() -> None:
    spec = make_spec(4, 2)
    batch = make_batch(spec, [(5, 1), (9, 1), (2, 4)], block_size=4, seed=8, is_scattered=True)
    backend = TorchAttention(CPU)
    cache = backend.allocate(batch.num_blocks, 4, spec, torch.float32)
    assert isinstance(cache, TorchKVCache)
    cache.keys.fill_(1e4)
    cache.values.fill_(1e4)
    cache.write(batch.past_keys, batch.past_values, batch.past_slots)
    backend.prepare(batch.context)

    attended = backend.forward(batch.queries, batch.keys, batch.values, cache, spec)

    assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5


def test_bfloat16_pools_are_attended_to() -> None:
    spec = make_spec(4, 2, 6)
    batch = make_batch(spec, [(20, 1), (33, 1), (8, 4), (0, 5)], block_size=4, seed=2, is_scattered=True)
    backend = TorchAttention(CPU)
    cache = backend.allocate(batch.num_blocks, 4, spec, torch.bfloat16)
    cache.write(batch.past_keys.bfloat16(), batch.past_values.bfloat16(), batch.past_slots)
    backend.prepare(batch.context)

    attended = backend.forward(batch.queries.bfloat16(), batch.keys.bfloat16(), batch.values.bfloat16(), cache, spec)

    assert attended.dtype == torch.bfloat16
    assert (attended.float() - reference_attention(batch, spec)).abs().max() < 0.05


@pytest.mark.parametrize("has_int8_kv", [False, True])
def test_what_a_block_held_before_is_never_seen(has_int8_kv: bool) -> None:
    """Two rows of different lengths over blocks that were left full of NaN by a sequence gone wrong."""
    spec, size = make_spec(4, 2), 4
    generator = torch.Generator().manual_seed(1)
    steps = [([0, 3, 5], [3, 2]), ([0, 1, 2], [4, 3]), ([0, 1, 2], [5, 4])]
    tables = torch.tensor([[2, 5], [4, 0]])
    found = []
    for is_dirty in (False, True):
        generator.manual_seed(1)
        backend = TorchAttention(CPU, has_int8_kv=has_int8_kv)
        cache = backend.allocate(6, size, spec, torch.float32)
        if is_dirty:
            bad = torch.full((24, 2, 8), float("nan"))
            cache.write(bad, bad, torch.arange(24))
        for starts, lengths in steps:
            positions = [
                position
                for row, length in enumerate(lengths)
                for position in range(length - (starts[row + 1] - starts[row]), length)
            ]
            rows = [row for row in range(2) for _ in range(starts[row + 1] - starts[row])]
            slots = [int(tables[row, at // size]) * size + at % size for row, at in zip(rows, positions, strict=True)]
            context = ForwardContext(
                positions=torch.tensor(positions),
                slot_mapping=torch.tensor(slots),
                query_starts=starts,
                context_lens=lengths,
                block_tables=tables,
                block_size=size,
            )
            backend.prepare(context)
            queries = torch.randn(starts[-1], 4, 8, generator=generator)
            keys, values = torch.randn(2, starts[-1], 2, 8, generator=generator)
            attended = backend.forward(queries, keys, values, cache, spec)
        found.append(attended)
    assert torch.isfinite(found[1]).all()
    assert torch.equal(found[0], found[1])


def decode_context(lengths: list[int], tables: torch.Tensor, size: int) -> ForwardContext:
    """One token for each row, the last of its length."""
    slots = [int(tables[row, (n - 1) // size]) * size + (n - 1) % size for row, n in enumerate(lengths)]
    return ForwardContext(
        positions=torch.tensor(lengths) - 1,
        slot_mapping=torch.tensor(slots),
        query_starts=list(range(len(lengths) + 1)),
        context_lens=lengths,
        block_tables=tables,
        block_size=size,
    )


class Steps:
    """Rows of one sequence each that decode step by step, in blocks of 4 that lie anywhere."""

    def __init__(
        self, lengths: list[int], *, seed: int, softcap: float | None = None, has_int8_kv: bool = False
    ) -> None:
        self.spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3, softcap=softcap)
        self.lengths = lengths
        self._generator = torch.Generator().manual_seed(seed)
        self._has_int8_kv = has_int8_kv
        num_blocks = -(-(max(lengths) + 200) // 4)
        shuffled = torch.randperm(len(lengths) * num_blocks, generator=self._generator)
        self.tables = shuffled.view(len(lengths), num_blocks)
        self.backend = TorchAttention(CPU, has_int8_kv=has_int8_kv)
        self.cache = self.new_cache()

    def new_cache(self) -> ReadableKVCache:
        """A pool that holds some numbers."""
        cache = self.backend.allocate(self.tables.numel(), 4, self.spec, torch.float32)
        slots = torch.arange(4 * self.tables.numel())
        keys, values = torch.randn(2, len(slots), 2, 8, generator=self._generator)
        cache.write(keys, values, slots)
        return cache

    def difference(self, cache: ReadableKVCache | None = None) -> float:
        """Take one token more for each row: how far the result is from that of a backend that knows nothing yet."""
        cache = cache or self.cache
        self.lengths = [length + 1 for length in self.lengths]
        context = decode_context(self.lengths, self.tables, 4)
        queries = torch.randn(len(self.lengths), 4, 8, generator=self._generator)
        keys, values = torch.randn(2, len(self.lengths), 2, 8, generator=self._generator)
        self.backend.prepare(context)
        found = self.backend.forward(queries, keys, values, cache, self.spec)
        other = TorchAttention(CPU, has_int8_kv=self._has_int8_kv)
        other.prepare(context)
        return float((found - other.forward(queries, keys, values, cache, self.spec)).abs().max())


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 40) | st.integers(790, 800), min_size=1, max_size=5),
    changes=st.lists(st.sampled_from("ssssdx"), max_size=8),
    softcap=st.sampled_from([None, 1.5]),
    has_int8_kv=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_steps_that_go_on_from_one_another_equal_steps_by_themselves(
    seed: int, lengths: list[int], changes: list[str], softcap: float | None, has_int8_kv: bool
) -> None:
    """Rows grow token by token; now and then one is dropped (d) or they change places (x)."""
    steps = Steps(lengths, seed=seed, softcap=softcap, has_int8_kv=has_int8_kv)
    for change in [*changes, "s", "s", "s"]:
        if change == "d" and len(steps.lengths) > 1:
            steps.lengths, steps.tables = steps.lengths[1:], steps.tables[1:]
        elif change == "x":
            steps.lengths, steps.tables = steps.lengths[::-1], steps.tables.flip(0)
        assert steps.difference() < 1e-5


def test_rows_that_go_on_are_not_gathered_again_until_their_room_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    num_gathers = 0
    gather_blocks = TorchKVCache.gather_blocks

    def counted(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal num_gathers
        num_gathers += 1
        return gather_blocks(*arguments)

    monkeypatch.setattr(TorchKVCache, "gather_blocks", counted)
    steps = Steps([3, 9], seed=1)

    for _ in range(150):
        assert steps.difference() < 1e-5

    # The backend to compare with gathers in every step; the other one in the first, which does not know that more will
    # follow, in the second, and each time that room for 64 tokens is used up.
    assert num_gathers == 150 + 1 + 3


def test_steps_over_another_pool_in_between_do_not_mix() -> None:
    steps = Steps([3, 9, 5], seed=2)
    other = steps.new_cache()
    for number in range(12):
        assert steps.difference(other if number % 3 == 2 else None) < 1e-5


def test_too_many_tokens_are_gathered_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.attention.torch_attention._MAX_KEPT_BYTES", 1000)
    steps = Steps([3, 9], seed=3)

    for _ in range(4):
        assert steps.difference() < 1e-5
    assert steps.cache.kept.state is None
