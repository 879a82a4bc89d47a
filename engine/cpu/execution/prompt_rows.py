"""Division of a step's prompts for compiled code: tokens computed together, and their memory."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import ForwardContext
from engine.cpu.gemm.matrix_unit import PIECE_BYTES, TILE_OUTPUTS, TILE_TOKENS, configuration
from engine.cpu.gemm.panel_tiles import ROW_BYTES, WIDTH
from engine.cpu.gemm.tiles import LANES
from engine.cpu.step.prompts import KEYS
from engine.models.config.config import ModelConfig

_HALF_BYTES, _FLOAT_BYTES = 2, 4


@dataclass(frozen=True, slots=True)
class Part:
    """Subset of a step's sequences, as a step of its own."""

    context: ForwardContext
    tokens: torch.Tensor
    """int64: indices of the part's tokens in the step."""


def has_prompts(context: ForwardContext, few: int) -> bool:
    """Return whether any sequence of a step has more than `few` tokens."""
    starts = context.query_starts
    return any(end - start > few for start, end in itertools.pairwise(starts))


def cut_evenly(context: ForwardContext, most: int) -> Iterator[tuple[int, int, ForwardContext]]:
    """Yield a step in even parts of up to `most` tokens, in order: first token, end, and the part as its own step."""
    starts = np.array(context.query_starts)
    num_tokens = int(starts[-1])
    size = -(-num_tokens // -(-num_tokens // most))
    for first in range(0, num_tokens, size):
        end = min(first + size, num_tokens)
        rows = np.flatnonzero((starts[:-1] < end) & (starts[1:] > first))
        # Tokens of a sequence after the part are not computed yet.
        missing = np.maximum(starts[rows + 1] - end, 0)
        part = replace(
            context,
            positions=context.positions[first:end],
            slot_mapping=context.slot_mapping[first:end],
            query_starts=[0, *(np.minimum(starts[rows + 1], end) - first).tolist()],
            context_lens=(np.array(context.context_lens)[rows] - missing).tolist(),
            block_tables=context.block_tables[rows[0] : rows[-1] + 1],
            sampled=None if context.sampled is None else [at - first for at in context.sampled if first <= at < end],
        )
        yield first, end, part


def split_rows(context: ForwardContext, few: int, max_tokens: int) -> tuple[list[Part], list[tuple[int, int]]]:
    """Split a step into short sequences, in parts of up to `max_tokens`, and prompts as (row, first token)."""
    starts = context.query_starts
    lengths = np.diff(starts)
    prompts = [(int(row), starts[row]) for row in np.flatnonzero(lengths > few)]
    parts: list[Part] = []
    rows: list[int] = []
    num_tokens = 0
    for row in np.flatnonzero(lengths <= few):
        if rows and num_tokens + lengths[row] > max_tokens:
            parts.append(_part(context, rows))
            rows, num_tokens = [], 0
        rows.append(int(row))
        num_tokens += int(lengths[row])
    if rows:
        parts.append(_part(context, rows))
    return parts, prompts


def _part(context: ForwardContext, rows: list[int]) -> Part:
    starts = context.query_starts
    tokens = torch.tensor([token for row in rows for token in range(starts[row], starts[row + 1])])
    ends = np.cumsum([starts[row + 1] - starts[row] for row in rows])
    return Part(
        replace(
            context,
            positions=context.positions.index_select(0, tokens),
            slot_mapping=context.slot_mapping.index_select(0, tokens),
            query_starts=[0, *ends.tolist()],
            context_lens=[context.context_lens[row] for row in rows],
            block_tables=context.block_tables.index_select(0, torch.tensor(rows)),
            sampled=None,
        ),
        tokens,
    )


def panels_of(context: ForwardContext, prompts: list[tuple[int, int]], num_threads: int) -> npt.NDArray[np.int64]:
    """Return the panels, int64 [panels, 5]: first token, number, row, lanes, and 1 if a token is sampled.

    There are as few panels as possible, or a multiple of the threads if each panel keeps a tile's width. Threads wait
    for each other once per layer.
    """
    found = []
    for row, first in prompts:
        end = context.query_starts[row + 1]
        length = end - first
        count = -(-length // WIDTH)
        if len(prompts) == 1:
            count = min(-(-count // num_threads) * num_threads, -(-length // TILE_TOKENS))
        width = -(-length // (count * TILE_TOKENS)) * TILE_TOKENS
        for start in range(first, end, width):
            number = min(width, end - start)
            lanes = -(-number // TILE_TOKENS) * TILE_TOKENS
            found.append((start, number, row, lanes, _num_sampled(context, start, start + number) > 0))
    return np.array(found, dtype=np.int64)


def _num_sampled(context: ForwardContext, start: int, end: int) -> int:
    """Return the number of sampled tokens in a range; all if the context does not name them."""
    if context.sampled is None:
        return end - start
    return bisect_left(context.sampled, end) - bisect_left(context.sampled, start)


class PanelRoom:
    """Memory for panels, which grows with the steps."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._unit = configuration()
        self._num_panels = self._num_threads = self._block_size = 0
        self._of_panels: list[torch.Tensor] = []
        self._of_threads: list[torch.Tensor] = []

    def fields(self, num_panels: int, num_threads: int, block_size: int) -> dict[str, int]:
        """Return addresses and sizes for a step's record."""
        config = self._config
        size, attended = config.head_dim, config.num_heads * config.head_dim
        hidden, gated = config.hidden_size, config.intermediate_size
        longest = max(hidden, attended, gated)
        pieces_size = PIECE_BYTES * longest
        # The matrix unit needs bfloat16 weights, vector units fewer of them in float32.
        of_weights = max(_HALF_BYTES * TILE_OUTPUTS, _FLOAT_BYTES * LANES) * longest
        keys = max(KEYS, block_size)
        of_attention = ROW_BYTES * (3 + keys) + _FLOAT_BYTES * size * block_size
        room_size = max(of_attention, ROW_BYTES * 2 * TILE_OUTPUTS + of_weights)
        if num_panels > self._num_panels:
            self._num_panels = 2 ** (num_panels - 1).bit_length()
            widths = (hidden, attended + 2 * config.num_kv_heads * size, size)
            self._of_panels = [_lines(self._num_panels * ROW_BYTES * width) for width in widths]
        if num_threads > self._num_threads or block_size > self._block_size:
            self._num_threads, self._block_size = num_threads, block_size
            sizes = (ROW_BYTES * hidden, ROW_BYTES * attended, ROW_BYTES * gated, pieces_size, room_size)
            self._of_threads = [_lines(num_threads * count) for count in sizes]
        names = ("panel_residual", "panel_qkv", "panel_turns")
        of_threads = ("panel_normed", "panel_attended", "panel_gated", "panel_pieces", "panel_room")
        return {
            **{name: memory.data_ptr() for name, memory in zip(names, self._of_panels, strict=True)},
            **{name: memory.data_ptr() for name, memory in zip(of_threads, self._of_threads, strict=True)},
            "num_panels": num_panels,
            "pieces_size": pieces_size,
            "room_size": room_size,
            "unit": self._unit.ctypes.data,
        }


def _lines(num_bytes: int) -> torch.Tensor:
    """Return zeros at an address that is a multiple of 64."""
    return torch.zeros(num_bytes // 4)
