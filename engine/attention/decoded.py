"""Rows that decode, and which of them go on from one step to the next. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.attention.base import ForwardContext


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Where the rows of a step with one token each stood. Told apart by identity: equal lengths are not equal rows."""

    rows: list[int]
    """Of the step; what follows is theirs alone."""
    tokens: list[int]
    context_lens: list[int]
    tables: npt.NDArray[np.int64]
    """[rows, blocks of the longest]; a copy, as the next step's tables take the place of this one's."""

    @classmethod
    def of(cls, context: ForwardContext, tables: npt.NDArray[np.int64]) -> Decoded | None:
        """None unless there are such rows, and steps are planned where they are carried out."""
        starts = context.query_starts
        rows = [row for row in range(len(starts) - 1) if starts[row + 1] - starts[row] == 1]
        if not rows or context.block_tables.device.type != "cpu":
            return None
        lengths = [context.context_lens[row] for row in rows]
        return cls(rows, [starts[row] for row in rows], lengths, tables[rows])

    def stands_like(self, before: Decoded) -> bool:
        """Whether these rows have the same places in their step."""
        return self.rows == before.rows and self.tokens == before.tokens

    def predecessors(self, before: Decoded, block_size: int) -> list[int | None]:
        """For each row which of the rows before it is, in the same blocks with one token more; None: none of them."""
        # The block of a row's newest token is nobody else's.
        by_end = {end: index for index, end in enumerate(before._blocks_at(block_size, 1))}
        found = [by_end.get(end) for end in self._blocks_at(block_size, 2)]
        now = [index for index, then in enumerate(found) if then is not None]
        then = [index for index in found if index is not None]
        for index, is_same in zip(now, self._follow(before, now, then, block_size), strict=True):
            if not is_same:
                found[index] = None
        return found

    def _blocks_at(self, block_size: int, offset: int) -> list[int]:
        """The block of each row's token so many from its end; -1 before its first."""
        positions = np.array(self.context_lens) - offset
        blocks = self.tables[range(len(positions)), positions.clip(0) // block_size]
        found: list[int] = np.where(positions < 0, -1, blocks).tolist()
        return found

    def _follow(self, before: Decoded, now: list[int], then: list[int], block_size: int) -> list[bool]:
        """Whether each of the rows `now` has the length and the blocks that its row `then` leads to."""
        lengths = np.array(before.context_lens)[then]
        num_columns = min(self.tables.shape[1], before.tables.shape[1])
        is_same = self.tables[now, :num_columns] == before.tables[then, :num_columns]
        is_behind = np.arange(num_columns) >= -(-lengths // block_size)[:, None]
        has_grown = np.array(self.context_lens)[now] == lengths + 1
        found: list[bool] = (has_grown & (is_same | is_behind).all(1)).tolist()
        return found
