"""Rows that go on decoding are gathered once: from then on a step only adds their newest tokens to what was kept.

Keys are kept with a head's numbers apart and its tokens side by side, values the other way round: both products of
attention then read memory from front to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import AttentionSpec, ForwardContext

HEADROOM_SLOTS = 64
"""So many tokens can every kept row get before all of them are gathered anew."""
_ANYTHING = torch.zeros(1)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Where the rows of a step with one token each stood. Told apart by identity: equal lengths are not equal rows."""

    context_lens: list[int]
    tables: npt.NDArray[np.int64]
    """[rows, blocks of the longest]; a copy, as the next step's tables take the place of this one's."""

    @classmethod
    def of(cls, context: ForwardContext, tables: npt.NDArray[np.int64]) -> Decoded | None:
        """None unless every row has one token, and steps are planned where they are carried out."""
        num_rows = len(context.context_lens)
        if context.block_tables.device.type != "cpu" or context.query_starts != list(range(num_rows + 1)):
            return None
        return cls(context.context_lens, tables.copy())

    def follows(self, before: Decoded, block_size: int) -> bool:
        """Whether these are the same rows in the same blocks, each with one token more."""
        if len(self.context_lens) != len(before.context_lens):
            return False
        if any(now != then + 1 for now, then in zip(self.context_lens, before.context_lens, strict=True)):
            return False
        num_columns = min(self.tables.shape[1], before.tables.shape[1])
        is_same = self.tables[:, :num_columns] == before.tables[:, :num_columns]
        if is_same.all():
            return True
        num_blocks = -(-np.array(before.context_lens) // block_size)
        return bool((is_same | (np.arange(num_columns) >= num_blocks[:, None])).all())


class Span(NamedTuple):
    """A group's part of what is kept."""

    start: int
    """Slots of the groups before it."""
    rows: Sequence[int]
    width: int
    """Slots of each row."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """What a step needs of what an earlier one gathered, in layers of one shape."""

    num_slots: int
    newest_keys: torch.Tensor
    """int64: where the newest tokens' keys stand, number by number, token by token."""
    newest_values: torch.Tensor
    """The same of their values."""
    rows: torch.Tensor | None
    """int64: the rows that are kept; None: all of the step."""
    state: Decoded
    """What is kept once this step is done."""
    before: Decoded | None
    """What must be there to add the newest tokens to; None: everything is gathered."""

    @classmethod
    def begin(cls, state: Decoded, spans: Sequence[Span], spec: AttentionSpec) -> KeptPlan:
        """A plan to gather these groups."""
        num_heads, size = spec.num_kv_heads, spec.head_dim
        lengths = state.context_lens
        keys: dict[int, npt.NDArray[np.int64]] = {}
        values: dict[int, npt.NDArray[np.int64]] = {}
        heads, numbers = np.arange(num_heads)[:, None], np.arange(size)
        for span in spans:
            for index, row in enumerate(span.rows):
                first = (span.start + index * span.width) * num_heads * size
                keys[row] = first + (heads * size + numbers) * span.width + lengths[row] - 1
                values[row] = first + (heads * span.width + lengths[row] - 1) * size + numbers
        rows = sorted(keys)
        return cls(
            num_slots=sum(len(span.rows) * span.width for span in spans),
            newest_keys=torch.from_numpy(np.stack([keys[row] for row in rows])),
            newest_values=torch.from_numpy(np.stack([values[row] for row in rows])),
            rows=None if len(rows) == len(lengths) else torch.tensor(rows),
            state=state,
            before=None,
        )

    def go_on(self, state: Decoded) -> KeptPlan:
        """With one token more for each row; this plan is of no more use."""
        newest_values = self.newest_values.add_(self.newest_values.shape[-1])
        return KeptPlan(self.num_slots, self.newest_keys.add_(1), newest_values, self.rows, state, self.state)


class KeptRows:
    """Keys and values of one layer's rows in float32, as some step left them."""

    __slots__ = ("_keys", "_values", "state")

    def __init__(self) -> None:
        self._keys = self._values = torch.empty(0)
        self.state: Decoded | None = None
        """What they hold; None: nothing that is of use."""

    def reserve(self, plan: KeptPlan, spec: AttentionSpec) -> None:
        """Make room; what was there is forgotten."""
        self.state = None
        count = plan.num_slots * spec.num_kv_heads * spec.head_dim
        if self._keys.numel() < count:
            # Ordinary tensors, so that they can be written both in and out of inference mode.
            with torch.inference_mode(False):
                self._keys, self._values = torch.empty(count), torch.empty(count)

    def fill(self, span: Span, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec) -> None:
        """Put a group's keys and values [rows * width, kv_heads, head_dim] in their places."""
        shape = (len(span.rows), span.width, spec.num_kv_heads, spec.head_dim)
        start, count = span.start * shape[2] * shape[3], keys.numel()
        kept_keys, kept_values = self._keys.narrow(0, start, count), self._values.narrow(0, start, count)
        kept_keys.view(shape[0], shape[2], shape[3], shape[1]).copy_(keys.view(shape).permute(0, 2, 3, 1))
        kept_values.view(shape[0], shape[2], shape[1], shape[3]).copy_(values.view(shape).permute(0, 2, 1, 3))

    def add(self, keys: torch.Tensor, values: torch.Tensor, plan: KeptPlan) -> None:
        """Take in the newest tokens' keys and values [rows, kv_heads, head_dim]."""
        assert self.state is plan.before
        self._keys.put_(plan.newest_keys, keys)
        self._values.put_(plan.newest_values, values)

    def attend(
        self, queries: torch.Tensor, span: Span, num_seen: int, mask: torch.Tensor | None, spec: AttentionSpec
    ) -> torch.Tensor:
        """[rows, heads, head_dim] of queries of this shape over each row's first `num_seen` slots.

        `mask` is additive float32 [rows, 1, 1, width].
        """
        size, width = spec.head_dim, span.width
        num_products, start = len(span.rows) * spec.num_kv_heads, span.start * spec.num_kv_heads * size
        keys = self._keys.as_strided((num_products, size, num_seen), (size * width, width, 1), start)
        values = self._values.as_strided((num_products, num_seen, size), (size * width, size, 1), start)
        grouped = queries.reshape(num_products, -1, size)
        scores = torch.baddbmm(_ANYTHING, grouped, keys, beta=0, alpha=spec.scale)
        if spec.softcap is not None:
            scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
        if mask is not None:
            scores.view(len(span.rows), -1, num_seen).add_(mask.view(len(span.rows), 1, width).narrow(2, 0, num_seen))
        return torch.bmm(scores.softmax(-1), values).view(-1, spec.num_heads, size)
