"""The torch backend equals attention by definition on every mix of sequences and block tables."""

from __future__ import annotations

from copy import deepcopy
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
    sequences=st.lists(st.tuples(st.integers(0, 70), st.sampled_from([1, 1, 1, 2, 5, 23])), min_size=1, max_size=7),
    block_size=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 10_000),
    is_scattered=st.booleans(),
)
def test_ragged_batches_equal_the_reference(
    heads: tuple[int, int],
    window: int | None,
    sequences: list[tuple[int, int]],
    block_size: int,
    seed: int,
    is_scattered: bool,
) -> None:
    spec = make_spec(*heads, window)
    batch = make_batch(spec, sequences, block_size=block_size, seed=seed, is_scattered=is_scattered)

    attended, _ = attend(batch, spec)

    assert attended.shape == batch.queries.shape
    assert (attended - reference_attention(batch, spec)).abs().max() < 1e-5


@pytest.mark.parametrize("is_scattered", [False, True])
@pytest.mark.parametrize("lengths", [[40], [3, 3, 3], [5, 300, 6, 310, 90]], ids=["one", "equal", "ragged"])
def test_pure_decode_equals_the_reference(lengths: list[int], is_scattered: bool) -> None:
    spec = make_spec(4, 2)
    sequences = [(length, 1) for length in lengths]
    batch = make_batch(spec, sequences, block_size=4, seed=1, is_scattered=is_scattered)

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


def test_new_keys_and_values_are_stored_for_the_next_step() -> None:
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
    """Two sequences of different lengths over blocks that a failed sequence left full of NaN."""
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
                for seq, length in enumerate(lengths)
                for position in range(length - (starts[seq + 1] - starts[seq]), length)
            ]
            sequences = [seq for seq in range(2) for _ in range(starts[seq + 1] - starts[seq])]
            slots = [
                int(tables[seq, at // size]) * size + at % size for seq, at in zip(sequences, positions, strict=True)
            ]
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


def seq_context(sequences: list[tuple[int, int]], tables: torch.Tensor, size: int) -> ForwardContext:
    """Sequences of (length, tokens of it that are new)."""
    starts = [0]
    positions: list[int] = []
    slots: list[int] = []
    for table, (length, num_tokens) in zip(tables.tolist(), sequences, strict=True):
        new = range(length - num_tokens, length)
        starts.append(starts[-1] + num_tokens)
        positions += new
        slots += [table[position // size] * size + position % size for position in new]
    return ForwardContext(
        positions=torch.tensor(positions),
        slot_mapping=torch.tensor(slots),
        query_starts=starts,
        context_lens=[length for length, _ in sequences],
        block_tables=tables,
        block_size=size,
    )


class Steps:
    """Sequences that decode step by step, in blocks of 4 that lie anywhere."""

    def __init__(
        self,
        lengths: list[int],
        *,
        seed: int,
        softcap: float | None = None,
        has_sinks: bool = False,
        has_int8_kv: bool = False,
    ) -> None:
        sinks = torch.tensor([-1.0, 3.0, 0.5, 9.0]) if has_sinks else None
        self.spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3, softcap=softcap, sinks=sinks)
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

    def difference(self, cache: ReadableKVCache | None = None, chunks: dict[int, int] | None = None) -> float:
        """Take one token more for each sequence: how far the result is from that of a backend that knows nothing yet.

        `chunks`: sequences that take so many tokens instead.
        """
        cache, chunks = cache or self.cache, chunks or {}
        counts = [chunks.get(seq, 1) for seq in range(len(self.lengths))]
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        context = seq_context(list(zip(self.lengths, counts, strict=True)), self.tables, 4)
        queries = torch.randn(sum(counts), 4, 8, generator=self._generator)
        keys, values = torch.randn(2, sum(counts), 2, 8, generator=self._generator)
        self.backend.prepare(context)
        found = self.backend.forward(queries, keys, values, cache, self.spec)
        other = TorchAttention(CPU, has_int8_kv=self._has_int8_kv)
        other.prepare(context)
        # A pool of its own: what the pool keeps belongs to one backend.
        return float((found - other.forward(queries, keys, values, deepcopy(cache), self.spec)).abs().max())


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 40) | st.integers(790, 800), min_size=1, max_size=5),
    changes=st.lists(st.sampled_from("ssssdx"), max_size=8),
    softcap=st.sampled_from([None, 1.5]),
    has_sinks=st.booleans(),
    has_int8_kv=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_steps_that_go_on_from_one_another_equal_steps_by_themselves(
    seed: int, lengths: list[int], changes: list[str], softcap: float | None, has_sinks: bool, has_int8_kv: bool
) -> None:
    """Sequences grow token by token; now and then one is dropped (d) or they change places (x)."""
    steps = Steps(lengths, seed=seed, softcap=softcap, has_sinks=has_sinks, has_int8_kv=has_int8_kv)
    for change in [*changes, "s", "s", "s"]:
        if change == "d" and len(steps.lengths) > 1:
            steps.lengths, steps.tables = steps.lengths[1:], steps.tables[1:]
        elif change == "x":
            steps.lengths, steps.tables = steps.lengths[::-1], steps.tables.flip(0)
        assert steps.difference() < 1e-5


@given(
    seed=st.integers(0, 1000),
    is_short=st.booleans(),
    changes=st.lists(
        st.tuples(st.sampled_from(["leave", "join", "chunk", "swap", "go on"]), st.integers(0, 9)), max_size=30
    ),
    has_int8_kv=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_that_come_and_go_beside_prompt_chunks_equal_steps_by_themselves(
    seed: int, is_short: bool, changes: list[tuple[str, int]], has_int8_kv: bool
) -> None:
    lengths = [3, 60, 9, 30, 5, 58, 31, 7] if is_short else [3, 400, 9, 150, 5, 390, 770, 151]
    steps = Steps(lengths, seed=seed, has_int8_kv=has_int8_kv)
    away: list[tuple[int, torch.Tensor]] = []
    for change, number in changes:
        seq = number % len(steps.lengths)
        chunks: dict[int, int] = {}
        if change == "leave" and len(steps.lengths) > 1:
            away.append((steps.lengths.pop(seq), steps.tables[seq]))
            steps.tables = torch.cat([steps.tables[:seq], steps.tables[seq + 1 :]])
        elif change == "join" and away:
            length, table = away.pop(0)
            steps.lengths.append(length)
            steps.tables = torch.cat([steps.tables, table.unsqueeze(0)])
        elif change == "swap":
            order = [seq, *(other for other in range(len(steps.lengths)) if other != seq)]
            steps.lengths, steps.tables = [steps.lengths[other] for other in order], steps.tables[order]
        elif change == "chunk":
            chunks = {seq: 2 + number}
        assert steps.difference(chunks=chunks) < 1e-5


class Gathers:
    """How many blocks pools of plain numbers were requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_calls = self.num_blocks = 0
        gather_blocks = TorchKVCache.gather_blocks

        def counted(cache: TorchKVCache, blocks: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
            self.num_calls += 1
            self.num_blocks += blocks.numel()
            return gather_blocks(cache, blocks, *arguments)

        monkeypatch.setattr(TorchKVCache, "gather_blocks", counted)


def test_rows_that_go_on_are_not_gathered_again_until_their_room_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gathers = Gathers(monkeypatch)
    steps = Steps([3, 9], seed=1)

    for _ in range(150):
        assert steps.difference() < 1e-5

    # The backend to compare with gathers in every step; the other one in the first, which does not know that more will
    # follow, in the second, and each time that room for 64 tokens is used up.
    assert gathers.num_calls == 150 + 1 + 3


def test_a_prompt_in_chunks_is_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[int] = []
    gather = TorchKVCache.gather

    def counted(cache: TorchKVCache, slots: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        gathered.append(slots.numel())
        return gather(cache, slots, *arguments)

    monkeypatch.setattr(TorchKVCache, "gather", counted)
    steps = Steps([40, 20], seed=6)

    for _ in range(4):
        assert steps.difference(chunks={0: 9, 1: 5}) < 1e-5

    # The backend to compare with gathers both sequences in every step; the other one the longer sequence in the first
    # only.
    assert sorted(gathered) == sorted([49, 49, 58, 67, 76, *(2 * [25, 30, 35, 40])])


def test_drafts_that_were_rejected_are_not_stored_for_the_step_behind_them() -> None:
    steps = Steps([40], seed=7)
    for num_rejected in (0, 3, 1, 0, 4):
        assert steps.difference(chunks={0: 5}) < 1e-5
        steps.lengths[0] -= num_rejected


def test_a_prompts_chunks_beside_decoding_rows_do_not_make_them_gathered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps([30, 31, 5], seed=4)
    steps.lengths, prompt = steps.lengths[:2], steps.tables
    steps.tables = prompt[:2]
    for _ in range(2):
        steps.difference()
    steps.lengths, steps.tables = [*steps.lengths, 5], prompt
    gathers = Gathers(monkeypatch)

    for _ in range(6):
        assert steps.difference(chunks={2: 7}) < 1e-5

    assert gathers.num_calls == 6  # of the backend to compare with


def test_a_row_that_joins_is_gathered_alone_and_takes_the_place_of_one_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps([30, 31, 32, 33, 34], seed=5)
    *lengths, joining_length = steps.lengths
    tables = steps.tables
    steps.lengths, steps.tables = lengths, tables[:4]
    for _ in range(2):
        steps.difference()
    steps.lengths, steps.tables = [*steps.lengths[1:], joining_length], tables[1:]
    steps.difference()
    gathers = Gathers(monkeypatch)

    assert steps.difference() < 1e-5
    theirs = -(-max(steps.lengths) // 4) * 4  # blocks of four sequences, by the backend to compare with
    assert gathers.num_calls == 2
    assert gathers.num_blocks - theirs == (-(-35 // 4) * 4 + 64) // 4  # one place, as it was opened

    assert steps.difference() < 1e-5
    assert gathers.num_calls == 3


def test_steps_over_another_pool_in_between_do_not_mix() -> None:
    steps = Steps([3, 9, 5], seed=2)
    other = steps.new_cache()
    for number in range(12):
        assert steps.difference(other if number % 3 == 2 else None) < 1e-5


def test_too_many_tokens_are_gathered_and_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.attention.torch_attention._MAX_RETAINED_BYTES", 1000)
    steps = Steps([3, 9], seed=3)

    for _ in range(4):
        assert steps.difference() < 1e-5
    assert steps.cache.retained.state is None
