"""Decoding sequences of a step, and their match with those of the step before. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.attention.base import ForwardContext


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """State of a step's sequences with one token each; compared by identity, as equal lengths prove nothing."""

    sequences: list[int]
    """Indices of these sequences in the step; the fields below hold one entry for each."""
    tokens: list[int]
    context_lens: list[int]
    tables: npt.NDArray[np.int64]
    """[num_seqs, largest number of blocks]: copy of the block tables, which the next step overwrites."""

    @classmethod
    def of(cls, context: ForwardContext, tables: npt.NDArray[np.int64]) -> Decoded | None:
        """Return the state; None without such sequences, or if the block tables are not on the CPU."""
        starts = context.query_starts
        sequences = [seq for seq in range(len(starts) - 1) if starts[seq + 1] - starts[seq] == 1]
        if not sequences or context.block_tables.device.type != "cpu":
            return None
        lengths = [context.context_lens[seq] for seq in sequences]
        return cls(sequences, [starts[seq] for seq in sequences], lengths, tables[sequences])

    def stands_like(self, before: Decoded) -> bool:
        """Return whether the sequences have the same indices and tokens in their step as in `before`."""
        return self.sequences == before.sequences and self.tokens == before.tokens

    def predecessors(self, before: Decoded, block_size: int) -> list[int | None]:
        """Find for each sequence the one in `before` that it continues with one token more in the same blocks.

        Returns:
            Indices into `before`; None where no sequence matches.
        """
        # The block of a sequence's newest token belongs to that sequence alone.
        by_end = {end: index for index, end in enumerate(before._blocks_at(block_size, 1))}
        found = [by_end.get(end) for end in self._blocks_at(block_size, 2)]
        now = [index for index, then in enumerate(found) if then is not None]
        then = [index for index in found if index is not None]
        for index, is_same in zip(now, self._follow(before, now, then, block_size), strict=True):
            if not is_same:
                found[index] = None
        return found

    def _blocks_at(self, block_size: int, offset: int) -> list[int]:
        """Return the block of the token `offset` positions before each sequence's end; -1 before its first token."""
        positions = np.array(self.context_lens) - offset
        blocks = self.tables[range(len(positions)), positions.clip(0) // block_size]
        found: list[int] = np.where(positions < 0, -1, blocks).tolist()
        return found

    def _follow(self, before: Decoded, now: list[int], then: list[int], block_size: int) -> list[bool]:
        """Return for each pair of `now` and `then` whether length and blocks match a continuation."""
        lengths = np.array(before.context_lens)[then]
        num_columns = min(self.tables.shape[1], before.tables.shape[1])
        is_same = self.tables[now, :num_columns] == before.tables[then, :num_columns]
        is_behind = np.arange(num_columns) >= -(-lengths // block_size)[:, None]
        has_grown = np.array(self.context_lens)[now] == lengths + 1
        found: list[bool] = (has_grown & (is_same | is_behind).all(1)).tolist()
        return found
