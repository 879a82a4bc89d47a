"""Preallocated host arrays in which a step's batch is laid out, and their views as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import ForwardContext
from engine.step.scheduler_output import ScheduledRow

_FEW_TOKENS = 32
"""Maximum number of tokens of a step that is laid out fastest by lists."""


class InputBuffers:
    """Buffers reused for every step: no allocation, no Python per token.

    On an accelerator the arrays are pinned and copied asynchronously. A step's buffers may be refilled only when its
    copies have run, so the runner alternates between two.
    """

    def __init__(self, max_tokens: int, max_rows: int, max_blocks: int, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device
        is_pinned = device.type == "cuda"

        def buffer(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned)

        self._tokens, self._positions, self._slots = buffer(max_tokens), buffer(max_tokens), buffer(max_tokens)
        self._tables, self._sampled = buffer(max_rows * max_blocks), buffer(max_tokens)
        self._tokens_np, self._positions_np = self._tokens.numpy(), self._positions.numpy()
        self._slots_np, self._tables_np = self._slots.numpy(), self._tables.numpy()
        self._sampled_np = self._sampled.numpy()
        self._ramp = np.arange(max(max_tokens, max_rows), dtype=np.int64)

    @classmethod
    def alternating(
        cls, max_tokens: int, max_rows: int, max_blocks: int, block_size: int, device: torch.device
    ) -> Iterator[InputBuffers]:
        """Return the buffers of successive steps, without end: two in turn where copies are asynchronous, else one."""
        num_buffers = 1 if device.type == "cpu" else 2
        return cycle([cls(max_tokens, max_rows, max_blocks, block_size, device) for _ in range(num_buffers)])

    def fill(self, rows: list[ScheduledRow], *, tells_sampled: bool = False) -> tuple[torch.Tensor, ForwardContext]:
        """Return the token ids [T] and the context of a step with these rows.

        With `tells_sampled`, the context lists the sampled tokens: each row's last token and its draft tokens.
        Otherwise it does so only where all tokens are sampled.
        """
        tables = self._fill_tables(rows)
        if all(row.num_tokens == 1 and not row.draft_token_ids for row in rows):
            starts, context_lens = self._fill_single(rows)
        elif sum(row.num_query_tokens for row in rows) <= _FEW_TOKENS:
            starts, context_lens = self._fill_few(rows)
        else:
            starts, context_lens = self._fill_chunks(rows)
            self._fill_slots(tables, starts)
            for start, row in zip(starts, rows, strict=False):
                if row.is_stored:
                    self._slots_np[start] = _slot(row, row.end, self._block_size)
        num_tokens = starts[-1]
        context = ForwardContext(
            positions=self._to_device(self._positions[:num_tokens]),
            slot_mapping=self._to_device(self._slots[:num_tokens]),
            query_starts=starts,
            context_lens=context_lens,
            block_tables=self._to_device(self._tables[: tables.size].view(tables.shape)),
            block_size=self._block_size,
            sampled=_sampled(rows, starts) if tells_sampled or _are_all_sampled(rows) else None,
        )
        return self._to_device(self._tokens[:num_tokens]), context

    def _fill_single(self, rows: list[ScheduledRow]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of rows of one token each; for so few numbers, lists are cheapest."""
        size, num_rows = self._block_size, len(rows)
        positions = [row.start for row in rows]
        self._tokens_np[:num_rows] = [row.seq.token_ids[row.start] for row in rows]
        self._positions_np[:num_rows] = positions
        self._slots_np[:num_rows] = [_slot(row, row.start + row.is_stored, size) for row in rows]
        return list(range(num_rows + 1)), [position + 1 for position in positions]

    def _fill_few(self, rows: list[ScheduledRow]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of few tokens in all, as in steps that verify draft tokens."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for row in rows:
            end = row.start + row.num_query_tokens
            tokens += row.seq.token_ids[row.start : row.end]
            tokens += row.draft_token_ids
            positions += range(row.start, end)
            slots += [_slot(row, position, self._block_size) for position in range(row.start, end)]
            if row.is_stored:
                slots[starts[-1]] = _slot(row, row.end, self._block_size)
            starts.append(len(tokens))
        num_tokens = starts[-1]
        self._tokens_np[:num_tokens] = tokens
        self._positions_np[:num_tokens] = positions
        self._slots_np[:num_tokens] = slots
        return starts, [row.start + row.num_query_tokens for row in rows]

    def _fill_chunks(self, rows: list[ScheduledRow]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of rows of any length; the slots remain to be filled."""
        starts = [0]
        context_lens: list[int] = []
        for row in rows:
            begin, end = starts[-1], starts[-1] + row.num_query_tokens
            known_end = begin + row.num_tokens
            self._tokens_np[begin:known_end] = row.seq.token_ids[row.start : row.end]
            if row.draft_token_ids:
                self._tokens_np[known_end:end] = row.draft_token_ids
            np.add(self._ramp[: end - begin], row.start, out=self._positions_np[begin:end])
            context_lens.append(row.start + row.num_query_tokens)
            starts.append(end)
        return starts, context_lens

    def indices(self, positions: list[int]) -> torch.Tensor:
        """Return the row numbers of the sampled hidden states as a tensor."""
        self._sampled_np[: len(positions)] = positions
        return self._to_device(self._sampled[: len(positions)])

    def _fill_tables(self, rows: list[ScheduledRow]) -> npt.NDArray[np.int64]:
        """Return the rows' block tables side by side, padded with 0 to the longest."""
        num_columns = max(len(row.seq.block_table) for row in rows)
        tables = self._tables_np[: len(rows) * num_columns].reshape(len(rows), num_columns)
        for table, row in zip(tables, rows, strict=True):
            num_blocks = len(row.seq.block_table)
            table[:num_blocks] = row.seq.block_table
            table[num_blocks:] = 0
        return tables

    def _fill_slots(self, tables: npt.NDArray[np.int64], starts: list[int]) -> None:
        """Set slot = block_table[row, position // block_size] * block_size + position % block_size for all tokens."""
        num_tokens, num_rows = starts[-1], len(starts) - 1
        positions = self._positions_np[:num_tokens]
        owners = np.repeat(self._ramp[:num_rows], np.diff(starts))
        columns, offsets = np.divmod(positions, self._block_size)
        np.multiply(tables[owners, columns], self._block_size, out=self._slots_np[:num_tokens])
        self._slots_np[:num_tokens] += offsets

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._device.type == "cpu" else tensor.to(self._device, non_blocking=True)


def _are_all_sampled(rows: list[ScheduledRow]) -> bool:
    return all(row.samples and row.num_tokens == 1 for row in rows)


def _sampled(rows: list[ScheduledRow], starts: list[int]) -> list[int]:
    """Return the positions of the sampled tokens: the last token of each sampling row and its draft tokens."""
    found: list[int] = []
    for index, row in enumerate(rows, 1):
        if row.samples:
            found += range(starts[index] - 1 - len(row.draft_token_ids), starts[index])
    return found


def _slot(row: ScheduledRow, position: int, block_size: int) -> int:
    return row.seq.block_table[position // block_size] * block_size + position % block_size
