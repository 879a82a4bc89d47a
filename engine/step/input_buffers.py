"""Preallocated host arrays in which a step's batch is laid out, and their views as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import ForwardContext
from engine.step.scheduler_output import ScheduledChunk

_FEW_TOKENS = 32
"""Maximum number of tokens of a step that is laid out fastest by lists."""


class _Windows(TypedDict, total=False):
    """Fields of a context for layers with a sliding window."""

    window_slots: torch.Tensor
    window_tables: torch.Tensor


class InputBuffers:
    """Buffers reused for every step: no allocation, no Python per token.

    On an accelerator the arrays are pinned and copied asynchronously. A step's buffers may be refilled only when its
    copies have run, so the runner alternates between two.
    """

    def __init__(
        self,
        max_tokens: int,
        max_num_seqs: int,
        max_blocks: int,
        block_size: int,
        device: torch.device,
        places: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Allocate the buffers.

        Args:
            max_tokens: Tokens of a step.
            max_num_seqs: Sequences of a step.
            max_blocks: Blocks of a sequence.
            block_size: Tokens of a block.
            device: Device of the tensors.
            places: Block of windowed layers for each block, which may change with each step; None: they use the same.
        """
        self._places = places
        self._block_size = block_size
        self._device = device
        is_pinned = device.type == "cuda"

        def buffer(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned)

        self._tokens, self._positions, self._slots = buffer(max_tokens), buffer(max_tokens), buffer(max_tokens)
        self._tables, self._sampled = buffer(max_num_seqs * max_blocks), buffer(max_tokens)
        self._tokens_np, self._positions_np = self._tokens.numpy(), self._positions.numpy()
        self._slots_np, self._tables_np = self._slots.numpy(), self._tables.numpy()
        self._sampled_np = self._sampled.numpy()
        self._ramp = np.arange(max(max_tokens, max_num_seqs), dtype=np.int64)

    @classmethod
    def alternating(
        cls,
        max_tokens: int,
        max_num_seqs: int,
        max_blocks: int,
        block_size: int,
        device: torch.device,
        places: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[InputBuffers]:
        """Return the buffers of successive steps, without end: two in turn where copies are asynchronous, else one."""
        num_buffers = 1 if device.type == "cpu" else 2
        return cycle(
            [cls(max_tokens, max_num_seqs, max_blocks, block_size, device, places) for _ in range(num_buffers)]
        )

    def fill(self, chunks: list[ScheduledChunk], *, with_sampled: bool = False) -> tuple[torch.Tensor, ForwardContext]:
        """Return the token ids [T] and the context of a step with these sequences.

        With `with_sampled`, the context lists the sampled tokens: each sequence's last token and its draft tokens.
        Otherwise it does so only where all tokens are sampled.
        """
        tables = self._fill_tables(chunks)
        if all(chunk.num_tokens == 1 and not chunk.draft_token_ids for chunk in chunks):
            starts, context_lens = self._fill_single(chunks)
        elif sum(chunk.num_query_tokens for chunk in chunks) <= _FEW_TOKENS:
            starts, context_lens = self._fill_few(chunks)
        else:
            starts, context_lens = self._fill_chunks(chunks)
            self._fill_slots(tables, starts)
            for start, chunk in zip(starts, chunks, strict=False):
                if chunk.is_stored:
                    self._slots_np[start] = _slot(chunk, chunk.end, self._block_size)
        num_tokens = starts[-1]
        context = ForwardContext(
            positions=self._to_device(self._positions[:num_tokens]),
            slot_mapping=self._to_device(self._slots[:num_tokens]),
            query_starts=starts,
            context_lens=context_lens,
            block_tables=self._to_device(self._tables[: tables.size].view(tables.shape)),
            block_size=self._block_size,
            **self._windows(tables, num_tokens),
            sampled=_sampled(chunks, starts) if with_sampled or _are_all_sampled(chunks) else None,
            adapters=_adapters(chunks),
        )
        return self._to_device(self._tokens[:num_tokens]), context

    def _fill_single(self, chunks: list[ScheduledChunk]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of chunks of one token each; lists are fastest for them."""
        size, num_seqs = self._block_size, len(chunks)
        positions = [chunk.start for chunk in chunks]
        self._tokens_np[:num_seqs] = [chunk.seq.token_ids[chunk.start] for chunk in chunks]
        self._positions_np[:num_seqs] = positions
        self._slots_np[:num_seqs] = [_slot(chunk, chunk.start + chunk.is_stored, size) for chunk in chunks]
        return list(range(num_seqs + 1)), [position + 1 for position in positions]

    def _fill_few(self, chunks: list[ScheduledChunk]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of few tokens in all, as in steps that verify draft tokens."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for chunk in chunks:
            end = chunk.start + chunk.num_query_tokens
            tokens += chunk.seq.token_ids[chunk.start : chunk.end]
            tokens += chunk.draft_token_ids
            positions += range(chunk.start, end)
            slots += [_slot(chunk, position, self._block_size) for position in range(chunk.start, end)]
            if chunk.is_stored:
                slots[starts[-1]] = _slot(chunk, chunk.end, self._block_size)
            starts.append(len(tokens))
        num_tokens = starts[-1]
        self._tokens_np[:num_tokens] = tokens
        self._positions_np[:num_tokens] = positions
        self._slots_np[:num_tokens] = slots
        return starts, [chunk.start + chunk.num_query_tokens for chunk in chunks]

    def _fill_chunks(self, chunks: list[ScheduledChunk]) -> tuple[list[int], list[int]]:
        """Return (query starts, context lengths) of chunks of any length; the slots remain to be filled."""
        starts = [0]
        context_lens: list[int] = []
        for chunk in chunks:
            begin, end = starts[-1], starts[-1] + chunk.num_query_tokens
            known_end = begin + chunk.num_tokens
            self._tokens_np[begin:known_end] = chunk.seq.token_ids[chunk.start : chunk.end]
            if chunk.draft_token_ids:
                self._tokens_np[known_end:end] = chunk.draft_token_ids
            np.add(self._ramp[: end - begin], chunk.start, out=self._positions_np[begin:end])
            context_lens.append(chunk.start + chunk.num_query_tokens)
            starts.append(end)
        return starts, context_lens

    def indices(self, positions: list[int]) -> torch.Tensor:
        """Return the row numbers of the sampled hidden states as a tensor."""
        self._sampled_np[: len(positions)] = positions
        return self._to_device(self._sampled[: len(positions)])

    def _fill_tables(self, chunks: list[ScheduledChunk]) -> npt.NDArray[np.int64]:
        """Return the sequences' block tables side by side, padded with 0 to the longest."""
        num_columns = max(len(chunk.seq.block_table) for chunk in chunks)
        tables = self._tables_np[: len(chunks) * num_columns].reshape(len(chunks), num_columns)
        for table, chunk in zip(tables, chunks, strict=True):
            num_blocks = len(chunk.seq.block_table)
            table[:num_blocks] = chunk.seq.block_table
            table[num_blocks:] = 0
        return tables

    def _fill_slots(self, tables: npt.NDArray[np.int64], starts: list[int]) -> None:
        """Set slot = block_table[seq, position // block_size] * block_size + position % block_size for all tokens."""
        num_tokens, num_seqs = starts[-1], len(starts) - 1
        positions = self._positions_np[:num_tokens]
        owners = np.repeat(self._ramp[:num_seqs], np.diff(starts))
        columns, offsets = np.divmod(positions, self._block_size)
        np.multiply(tables[owners, columns], self._block_size, out=self._slots_np[:num_tokens])
        self._slots_np[:num_tokens] += offsets

    def _windows(self, tables: npt.NDArray[np.int64], num_tokens: int) -> _Windows:
        """Return slots and block tables of the layers with a sliding window, if these have blocks of their own."""
        if self._places is None:
            return {}
        blocks, offsets = np.divmod(self._slots_np[:num_tokens], self._block_size)
        slots = torch.from_numpy(self._places[blocks] * self._block_size + offsets)
        return _Windows(window_slots=slots, window_tables=torch.from_numpy(self._places[tables]))

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._device.type == "cpu" else tensor.to(self._device, non_blocking=True)


def _are_all_sampled(chunks: list[ScheduledChunk]) -> bool:
    return all(chunk.samples and chunk.num_tokens == 1 for chunk in chunks)


def _adapters(chunks: list[ScheduledChunk]) -> list[int | None] | None:
    """Return the index of each sequence's adapter; None if no sequence has one."""
    if all(chunk.seq.adapter is None for chunk in chunks):
        return None
    return [None if chunk.seq.adapter is None else chunk.seq.adapter.index for chunk in chunks]


def _sampled(chunks: list[ScheduledChunk], starts: list[int]) -> list[int]:
    """Return the positions of the sampled tokens: the last token of each sampling sequence and its draft tokens."""
    found: list[int] = []
    for index, chunk in enumerate(chunks, 1):
        if chunk.samples:
            found += range(starts[index] - 1 - len(chunk.draft_token_ids), starts[index])
    return found


def _slot(chunk: ScheduledChunk, position: int, block_size: int) -> int:
    return chunk.seq.block_table[position // block_size] * block_size + position % block_size
