"""Attention by definition: a Python loop over sequences, queries and heads, in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from engine.attention.base import AttentionSpec, ForwardContext


@dataclass(frozen=True)
class Batch:
    """A step's inputs together with every key and value of its sequences, as if nothing were paged."""

    context: ForwardContext
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    past_slots: torch.Tensor
    past_keys: torch.Tensor
    past_values: torch.Tensor
    row_keys: list[torch.Tensor]
    row_values: list[torch.Tensor]
    num_blocks: int


def make_batch(
    spec: AttentionSpec, rows: list[tuple[int, int]], *, block_size: int, seed: int, is_scattered: bool
) -> Batch:
    """Sequences are (tokens computed before, new tokens); block tables ascend or are shuffled."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-(past + new) // block_size) for past, new in rows]
    num_blocks = sum(counts) + 3
    free = list(range(num_blocks))
    if is_scattered:
        rng.shuffle(free)
    tables = [[free.pop(0) for _ in range(count)] for count in counts]
    width = max(counts) + 1
    row_keys = [torch.randn(p + n, spec.num_kv_heads, spec.head_dim, generator=generator) for p, n in rows]
    row_values = [torch.randn(p + n, spec.num_kv_heads, spec.head_dim, generator=generator) for p, n in rows]
    slots = [
        torch.tensor([table[i // block_size] * block_size + i % block_size for i in range(past + new)])
        for table, (past, new) in zip(tables, rows, strict=True)
    ]
    starts = [0]
    for _, new in rows:
        starts.append(starts[-1] + new)
    pasts = [past for past, _ in rows]
    return Batch(
        context=ForwardContext(
            positions=torch.cat([torch.arange(past, past + new) for past, new in rows]),
            slot_mapping=torch.cat([s[past:] for s, past in zip(slots, pasts, strict=True)]),
            query_starts=starts,
            context_lens=[past + new for past, new in rows],
            block_tables=torch.tensor([table + [0] * (width - len(table)) for table in tables]),
            block_size=block_size,
        ),
        queries=torch.randn(starts[-1], spec.num_heads, spec.head_dim, generator=generator),
        keys=torch.cat([keys[past:] for keys, past in zip(row_keys, pasts, strict=True)]),
        values=torch.cat([values[past:] for values, past in zip(row_values, pasts, strict=True)]),
        past_slots=torch.cat([s[:past] for s, past in zip(slots, pasts, strict=True)]),
        past_keys=torch.cat([keys[:past] for keys, past in zip(row_keys, pasts, strict=True)]),
        past_values=torch.cat([values[:past] for values, past in zip(row_values, pasts, strict=True)]),
        row_keys=row_keys,
        row_values=row_values,
        num_blocks=num_blocks,
    )


def reference_attention(batch: Batch, spec: AttentionSpec) -> torch.Tensor:
    """[T, heads, head_dim] float32."""
    context = batch.context
    group = spec.num_heads // spec.num_kv_heads
    result = torch.zeros(batch.queries.shape, dtype=torch.float64)
    for row, (keys, values) in enumerate(zip(batch.row_keys, batch.row_values, strict=True)):
        for token in range(context.query_starts[row], context.query_starts[row + 1]):
            position = int(context.positions[token])
            first = 0 if spec.sliding_window is None else max(0, position - spec.sliding_window + 1)
            seen = slice(first, position + 1)
            for head in range(spec.num_heads):
                scores = keys[seen, head // group].double() @ batch.queries[token, head].double() * spec.scale
                if spec.softcap is not None:
                    scores = spec.softcap * torch.tanh(scores / spec.softcap)
                if spec.sinks is not None:
                    scores = torch.cat([scores, spec.sinks[head : head + 1].double()])
                shares = torch.softmax(scores, 0)[: keys[seen].shape[0]]
                result[token, head] = shares @ values[seen, head // group].double()
    return result.float()
