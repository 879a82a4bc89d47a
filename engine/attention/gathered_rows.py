"""Gathered keys and values of decoding sequences: each step adds only the newest tokens.

Keys lie as [head_dim, tokens] for each head, values as [tokens, head_dim]. Both products of attention then read memory
in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from engine.attention.base import AttentionSpec
from engine.attention.decoded import Decoded
from engine.attention.explicit import softmax_with_sinks
from engine.attention.gathered_layout import Layout

_ANYTHING = torch.zeros(1)


class Span(NamedTuple):
    """Adjacent sequences of one width."""

    start: int
    """Slot of the first of them."""
    num_seqs: int
    width: int
    """Number of slots of each sequence."""


class Fill(NamedTuple):
    """Sequences to gather as a whole."""

    span: Span
    blocks: torch.Tensor
    """int64 [num_seqs * blocks of a sequence]: blocks to read."""


@dataclass(frozen=True, slots=True)
class GatheredPlan:
    """Plan of a step over memory gathered by earlier steps, for layers of one shape."""

    layout: Layout
    fills: Sequence[Fill]
    """Sequences to gather once the layout's moves are done."""
    tokens: torch.Tensor
    """int64: newest tokens of the retained sequences, in order."""
    newest_keys: torch.Tensor
    """int64: indices of their keys, by number and token."""
    newest_values: torch.Tensor
    """int64: indices of their values, by number and token."""
    state: Decoded
    """State of the memory after this step."""
    before: Decoded | None
    """State that the memory must be in; None: everything is gathered."""

    @classmethod
    def of(
        cls, layout: Layout, fills: Sequence[Fill], spec: AttentionSpec, state: Decoded, before: Decoded | None
    ) -> GatheredPlan:
        """Build the plan of a layout."""
        num_heads, size = spec.num_kv_heads, spec.head_dim
        places = sorted(
            (state.tokens[seq], group.slot(place), group.width, state.context_lens[seq])
            for group in layout.groups
            for place, seq in enumerate(group.sequences)
        )
        tokens, slots, widths, lengths = (np.array(column)[:, None, None] for column in zip(*places, strict=True))
        firsts = slots * num_heads * size
        heads, numbers = np.arange(num_heads)[:, None], np.arange(size)
        return cls(
            layout=layout,
            fills=fills,
            tokens=torch.from_numpy(tokens.ravel()),
            newest_keys=torch.from_numpy(firsts + (heads * size + numbers) * widths + lengths - 1),
            newest_values=torch.from_numpy(firsts + (heads * widths + lengths - 1) * size + numbers),
            state=state,
            before=before,
        )

    def advance(self, state: Decoded) -> GatheredPlan:
        """Return the plan of the next step with one token more for each sequence; this plan becomes invalid."""
        layout = replace(self.layout, moves=(), joined=(), is_new=False)
        keys, values = self.newest_keys.add_(1), self.newest_values.add_(self.newest_values.shape[-1])
        return GatheredPlan(layout, (), self.tokens, keys, values, state, self.state)


class GatheredSequences:
    """Float32 keys and values of one layer's decoding sequences, as of some step."""

    __slots__ = ("_keys", "_values", "state")

    def __init__(self) -> None:
        self._keys = self._values = torch.empty(0)
        self.state: Decoded | None = None
        """Content of the memory; None: nothing of use."""

    def begin(self, plan: GatheredPlan, spec: AttentionSpec) -> None:
        """Allocate memory for a new layout, or move sequences to their new places."""
        layout, slot_numbers = plan.layout, spec.num_kv_heads * spec.head_dim
        if layout.is_new:
            self.state = None
            count = layout.num_reserved * slot_numbers
            if self._keys.numel() < count:
                # Ordinary tensors can be written both in and out of inference mode.
                with torch.inference_mode(False):
                    self._keys, self._values = torch.empty(count), torch.empty(count)
        assert self.state is plan.before
        for move in layout.moves:
            source, target, count = (number * slot_numbers for number in move)
            for retained in (self._keys, self._values):
                retained.narrow(0, target, count).copy_(retained.narrow(0, source, count))

    def fill(self, span: Span, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec) -> None:
        """Store the span's keys and values [num_seqs * width, kv_heads, head_dim]."""
        shape = (span.num_seqs, span.width, spec.num_kv_heads, spec.head_dim)
        start, count = span.start * shape[2] * shape[3], keys.numel()
        retained_keys, retained_values = self._keys.narrow(0, start, count), self._values.narrow(0, start, count)
        retained_keys.view(shape[0], shape[2], shape[3], shape[1]).copy_(keys.view(shape).permute(0, 2, 3, 1))
        retained_values.view(shape[0], shape[2], shape[1], shape[3]).copy_(values.view(shape).permute(0, 2, 1, 3))

    def add(self, keys: torch.Tensor, values: torch.Tensor, plan: GatheredPlan) -> None:
        """Store the newest tokens' keys and values [num_seqs, kv_heads, head_dim]."""
        self._keys.put_(plan.newest_keys, keys)
        self._values.put_(plan.newest_values, values)

    def attend(
        self, queries: torch.Tensor, span: Span, num_seen: int, mask: torch.Tensor | None, spec: AttentionSpec
    ) -> torch.Tensor:
        """Attend over each sequence's first `num_seen` slots.

        Args:
            queries: [num_seqs, heads, head_dim].
            span: Place of the sequences.
            num_seen: Number of slots to read.
            mask: Additive float32 [num_seqs, 1, 1, width].
            spec: Shape of the attention.

        Returns:
            [num_seqs, heads, head_dim].
        """
        size, width = spec.head_dim, span.width
        num_products, start = span.num_seqs * spec.num_kv_heads, span.start * spec.num_kv_heads * size
        keys = self._keys.as_strided((num_products, size, num_seen), (size * width, width, 1), start)
        values = self._values.as_strided((num_products, num_seen, size), (size * width, size, 1), start)
        grouped = queries.reshape(num_products, -1, size)
        scores = torch.baddbmm(_ANYTHING, grouped, keys, beta=0, alpha=spec.scale)
        if spec.softcap is not None:
            scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
        if mask is not None:
            scores.view(span.num_seqs, -1, num_seen).add_(mask.view(span.num_seqs, 1, width).narrow(2, 0, num_seen))
        sinks = None
        if spec.sinks is not None:
            sinks = spec.sinks.view(1, spec.num_kv_heads, -1, 1).expand(span.num_seqs, -1, -1, 1).flatten(0, 1)
        return torch.bmm(softmax_with_sinks(scores, sinks), values).view(-1, spec.num_heads, size)
