"""The Triton backend agrees with attention written out, for every mix of rows; on CPU through the interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.attention.base import AttentionSpec, DeviceLengths, ForwardContext
from engine.attention.triton_kv_cache import TritonKVCache
from engine.attention.triton_paged import TritonPagedAttention

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK_SIZE = 8


class Pool:
    """Rows with a random past, laid out over shuffled blocks."""

    def __init__(self, spec: AttentionSpec, rows: list[tuple[int, int]], seed: int = 0) -> None:
        """`rows`: (positions already computed, query length) of each row."""
        self.spec = spec
        self.rows = rows
        self.random = torch.Generator().manual_seed(seed)
        needed = [-(-(past + length) // BLOCK_SIZE) for past, length in rows]
        order = torch.randperm(sum(needed) + 3, generator=self.random).tolist()
        self.tables = torch.zeros(len(rows), max(needed), dtype=torch.int64)
        self.num_blocks = len(order)
        for row, count in enumerate(needed):
            self.tables[row, :count] = torch.tensor([order.pop() for _ in range(count)])
        self.keys = [self._draw(past + length, spec.num_kv_heads) for past, length in rows]
        self.values = [self._draw(past + length, spec.num_kv_heads) for past, length in rows]
        self.queries = [self._draw(length, spec.num_heads) for _, length in rows]

    def _draw(self, length: int, heads: int) -> torch.Tensor:
        return torch.randn(length, heads, self.spec.head_dim, generator=self.random)

    def slots(self, row: int, begin: int, end: int) -> torch.Tensor:
        positions = torch.arange(begin, end)
        return self.tables[row][positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE

    def context(self) -> ForwardContext:
        starts = [0]
        for _, length in self.rows:
            starts.append(starts[-1] + length)
        return ForwardContext(
            positions=torch.cat([torch.arange(past, past + length) for past, length in self.rows]),
            slot_mapping=torch.cat([self.slots(r, past, past + length) for r, (past, length) in enumerate(self.rows)]),
            query_starts=starts,
            context_lens=[past + length for past, length in self.rows],
            block_tables=self.tables,
            block_size=BLOCK_SIZE,
        )

    def run(self, backend: TritonPagedAttention) -> torch.Tensor:
        cache = backend.allocate(self.num_blocks, BLOCK_SIZE, self.spec, torch.float32)
        for row, (past, _) in enumerate(self.rows):
            if past:
                cache.write(
                    self.keys[row][:past].to(DEVICE),
                    self.values[row][:past].to(DEVICE),
                    self.slots(row, 0, past).to(DEVICE),
                )
        backend.prepare(self.context())
        new_keys = torch.cat([keys[past:] for keys, (past, _) in zip(self.keys, self.rows, strict=True)])
        new_values = torch.cat([values[past:] for values, (past, _) in zip(self.values, self.rows, strict=True)])
        queries = torch.cat(self.queries)
        return backend.forward(queries.to(DEVICE), new_keys.to(DEVICE), new_values.to(DEVICE), cache, self.spec).cpu()

    def expected(self) -> torch.Tensor:
        group = self.spec.num_heads // self.spec.num_kv_heads
        outputs = []
        for (past, length), queries, keys, values in zip(self.rows, self.queries, self.keys, self.values, strict=True):
            wide_keys, wide_values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", queries, wide_keys) * self.spec.scale
            if self.spec.softcap is not None:
                scores = self.spec.softcap * torch.tanh(scores / self.spec.softcap)
            at = torch.arange(past, past + length)[:, None]
            key_at = torch.arange(past + length)[None, :]
            visible = key_at <= at
            if self.spec.sliding_window is not None:
                visible &= key_at > at - self.spec.sliding_window
            weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
            outputs.append(torch.einsum("hqk,khd->qhd", weights, wide_values))
        return torch.cat(outputs)


def spec(heads: int = 4, kv_heads: int = 2, head_dim: int = 16, window: int | None = None) -> AttentionSpec:
    return AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5, window)


MIXES = {
    "one decode row": [(19, 1)],
    "decode rows of different lengths": [(0, 1), (7, 1), (8, 1), (63, 1)],
    "verification of drafts": [(20, 5), (33, 5), (8, 5)],
    "prefill from nothing": [(0, 37)],
    "prefill chunk after a cached prefix": [(24, 13)],
    "decode, verification and prefill together": [(40, 1), (9, 4), (0, 21), (16, 17), (3, 1)],
}


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("window", [None, 11], ids=["full", "window"])
def test_matches_attention_written_out(rows: list[tuple[int, int]], window: int | None) -> None:
    pool = Pool(spec(window=window), rows)
    assert torch.allclose(pool.run(TritonPagedAttention(device=DEVICE)), pool.expected(), atol=2e-5)


@pytest.mark.parametrize("num_processors", [1, 64], ids=["whole", "segments"])
def test_capped_scores_match_attention_written_out(num_processors: int) -> None:
    capped = AttentionSpec(4, 2, 16, 1.0, sliding_window=200, softcap=1.5)
    pool = Pool(capped, [(515, 1), (9, 4), (0, 21), (16, 7)])
    backend = TritonPagedAttention(device=DEVICE, num_processors=num_processors)
    assert torch.allclose(pool.run(backend), pool.expected(), atol=2e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 16), (8, 1, 32), (6, 2, 24), (14, 2, 16)])
def test_head_counts_and_sizes_that_are_no_powers_of_two(heads: int, kv_heads: int, head_dim: int) -> None:
    pool = Pool(spec(heads, kv_heads, head_dim), [(30, 1), (0, 9), (12, 3)])
    assert torch.allclose(pool.run(TritonPagedAttention(device=DEVICE)), pool.expected(), atol=2e-5)


@pytest.mark.parametrize("rows", [[(700, 1)], [(515, 1), (130, 1), (2, 1)], [(300, 3), (600, 3)]])
def test_keys_cut_into_segments_give_the_same_answer(rows: list[tuple[int, int]]) -> None:
    pool = Pool(spec(), rows)
    whole = pool.run(TritonPagedAttention(device=DEVICE, num_processors=1))
    cut = pool.run(TritonPagedAttention(device=DEVICE, num_processors=64))
    assert torch.allclose(cut, whole, atol=1e-5)
    assert torch.allclose(cut, pool.expected(), atol=2e-5)


def test_int8_pool_keeps_a_scale_for_each_token_and_head() -> None:
    pool = Pool(spec(), [(25, 1), (0, 12), (6, 3)])
    # One loud token must not cost the others their precision: its scale is its own.
    pool.keys[0][3] *= 50.0
    backend = TritonPagedAttention(device=DEVICE, kv_dtype=torch.int8)
    error = (pool.run(backend) - pool.expected()).abs().max().item()
    assert error < 0.05
    cache = backend.allocate(2, BLOCK_SIZE, pool.spec, torch.float32)
    assert isinstance(cache, TritonKVCache)
    tokens = torch.randn(3, 2, 16)
    cache.write(tokens.to(DEVICE), tokens.to(DEVICE), torch.tensor([1, 5, 9], device=DEVICE))
    assert cache.key_scales is not None
    restored = cache.keys[[1, 5, 9]].float().cpu() * cache.key_scales[[1, 5, 9]].cpu()[..., None]
    step = tokens.abs().amax(-1, keepdim=True) / 127
    assert bool(((restored - tokens).abs() <= step / 2 + 1e-6).all())


def test_fp8_pool_is_read_with_its_scales() -> None:
    pool = Pool(spec(), [(25, 1), (0, 12), (6, 3)])
    backend = TritonPagedAttention(device=DEVICE, kv_dtype=torch.float8_e4m3fn)
    error = (pool.run(backend) - pool.expected()).abs().max().item()
    # Three bits behind the first: values of 3 are off by up to a sixteenth.
    assert error < 0.4


def test_rows_that_decode_beside_a_chunk_keep_their_segments() -> None:
    pool = Pool(spec(), [(515, 1), (60, 2), (3, 20), (0, 18)])
    backend = TritonPagedAttention(device=DEVICE, num_processors=64)
    assert torch.allclose(pool.run(backend), pool.expected(), atol=2e-5)


@pytest.mark.parametrize("num_processors", [1, 64], ids=["whole", "segments"])
def test_padded_steps_read_their_lengths_from_the_device(num_processors: int) -> None:
    pool = Pool(spec(), [(130, 1), (20, 3)])
    backend = TritonPagedAttention(device=DEVICE, num_processors=num_processors)
    cache = backend.allocate(pool.num_blocks, BLOCK_SIZE, pool.spec, torch.float32)
    for row, (keys, values) in enumerate(zip(pool.keys, pool.values, strict=True)):
        cache.write(keys.to(DEVICE), values.to(DEVICE), pool.slots(row, 0, len(keys)).to(DEVICE))
    lengths = DeviceLengths(
        query_starts=torch.tensor([0, 1, 4, 4, 4], dtype=torch.int32, device=DEVICE),
        context_lens=torch.tensor([131, 23, 0, 0], dtype=torch.int32, device=DEVICE),
    )
    tables = torch.zeros(4, pool.tables.shape[1], dtype=torch.int32)
    tables[:2] = pool.tables
    padding = torch.zeros(12, dtype=torch.int64)
    # Four rows of up to three tokens; the lists are bounds.
    backend.prepare(ForwardContext(padding, padding - 1, [0, 3, 6, 9, 12], [256] * 4, tables, BLOCK_SIZE, lengths))
    heads = torch.zeros(12, (4 + 2 * 2) * 16)
    heads[:4, : 4 * 16] = torch.cat(pool.queries).flatten(1)
    assert isinstance(cache, TritonKVCache)
    before = [tensor.clone() for tensor in (cache.keys, cache.values)]
    still = torch.ones(12, 1, 8, dtype=torch.complex64)

    out = backend.rotate_and_forward(heads.to(DEVICE), still.to(DEVICE), None, cache, pool.spec)

    assert torch.allclose(out[:4].cpu(), pool.expected(), atol=2e-5)
    assert torch.equal(cache.keys, before[0]), "padding was stored"
    assert torch.equal(cache.values, before[1])
