"""Recurrent states that a step reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch


class StateUse(NamedTuple):
    """Slots of recurrent states that a step reads and writes for one sequence."""

    read: int | None
    """Slot of the state before the step's tokens; None: the sequence begins."""
    write: int
    """Slot of the state behind them; another one, so that the step can be computed again."""
    saved: tuple[tuple[int, int], ...] = ()
    """States at block borders within the step's tokens: the number of tokens before each, ascending, and its slot."""

    @property
    def last_slot(self) -> int:
        """Largest slot that is written."""
        return max(self.write, *(slot for _, slot in self.saved), 0)


NUM_CUTS = 3
"""Largest number of states that a step writes for one sequence: the last one, and two saved ones."""
_NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class StepStates:
    """Slots of a step's R sequences, and where in the step the N states stand that they write.

    A convolution before the recurrence reads K inputs. Its K - 1 earlier ones are kept with each state. `windows` and
    `cut_windows` point into those of all sequences, one after the other, followed by the inputs of the step.
    """

    uses: Sequence[StateUse]
    """Slots of each sequence; empty in a captured step."""
    query_starts: Sequence[int]
    reads: torch.Tensor
    """int64 [R]: slot of the state before the step's tokens; -1: the sequence begins."""
    begins: torch.Tensor | None
    """Indices of the sequences that begin; None: all go on."""
    starts: torch.Tensor
    """int64 [R + 1]: query starts."""
    cut_ends: torch.Tensor
    """int64 [R, C]: number of a sequence's tokens before a state that is written; 0: none."""
    cut_slots: torch.Tensor
    """int64 [R, C]: its slot."""
    windows: torch.Tensor
    """int64 [T, K]: inputs of each token's convolution."""
    cut_windows: torch.Tensor
    """int64 [N, K - 1]: the last inputs before each state that is written."""
    written: torch.Tensor
    """int64 [N]: slots of these states."""
    num_slots: int
    """Number of slots that the step needs, from the first on."""

    @classmethod
    def of(
        cls, uses: Sequence[StateUse], query_starts: Sequence[int], num_inputs: int, device: torch.device
    ) -> StepStates:
        """Return the slots of sequences.

        Args:
            uses: Slots of each sequence.
            query_starts: Sequence i has the tokens query_starts[i]:query_starts[i + 1] of the step.
            num_inputs: K, the inputs that the convolution reads.
            device: Device of the model.
        """
        reads = [_NO_SLOT if use.read is None else use.read for use in uses]
        num_slots = 1 + max(use.last_slot for use in uses)

        def put(numbers: Sequence[object]) -> torch.Tensor:
            found = torch.tensor(numbers, dtype=torch.int64)
            return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found

        if _are_single_tokens(uses, query_starts):
            writes = put([use.write for use in uses])
            return cls.of_single_tokens(put(reads), writes, num_inputs, num_slots, uses, query_starts)
        num_earlier, num_rows = num_inputs - 1, len(uses)
        ends: list[list[int]] = []
        slots: list[list[int]] = []
        windows: list[list[int]] = []
        cut_windows: list[list[int]] = []
        for row, (use, (start, end)) in enumerate(zip(uses, pairwise(query_starts), strict=True)):
            cuts = [*use.saved, (end - start, use.write)] if end > start else []
            missing = NUM_CUTS - len(cuts)
            ends.append([tokens for tokens, _ in cuts] + [0] * missing)
            slots.append([slot for _, slot in cuts] + [_NO_SLOT] * missing)
            first = row * num_earlier
            step = range(num_rows * num_earlier + start, num_rows * num_earlier + end)
            places = [*range(first, first + num_earlier), *step]
            windows += [places[token : token + num_inputs] for token in range(end - start)]
            cut_windows += [places[tokens : tokens + num_earlier] for tokens, _ in cuts]
        begins = [row for row, use in enumerate(uses) if use.read is None]
        written = [slot for of_row in slots for slot in of_row if slot != _NO_SLOT]
        return cls(
            uses,
            query_starts,
            put(reads),
            put(begins) if begins else None,
            put(query_starts),
            put(ends),
            put(slots),
            put(windows).view(-1, num_inputs),
            put(cut_windows).view(-1, num_earlier),
            put(written),
            num_slots,
        )

    @classmethod
    def of_single_tokens(
        cls,
        reads: torch.Tensor,
        writes: torch.Tensor,
        num_inputs: int,
        num_slots: int,
        uses: Sequence[StateUse] = (),
        query_starts: Sequence[int] = (),
    ) -> StepStates:
        """Return the slots of sequences that all go on by one token.

        Args:
            reads: int64 [R]: slots of the states before the tokens.
            writes: int64 [R]: slots of the states behind them.
            num_inputs: K, the inputs that the convolution reads.
            num_slots: Number of slots that the step may name.
            uses: Slots of each sequence; none for a captured step.
            query_starts: Query starts; none for a captured step.
        """
        num_rows, num_earlier = reads.shape[0], num_inputs - 1
        rows = torch.arange(num_rows + 1, device=reads.device)
        earlier = rows[:num_rows, None] * num_earlier + rows.new_tensor(range(num_earlier))
        windows = torch.cat((earlier, num_rows * num_earlier + rows[:num_rows, None]), 1)
        ends, slots = torch.ones_like(writes).unsqueeze(1), writes.unsqueeze(1)
        return cls(uses, query_starts, reads, None, rows, ends, slots, windows, windows[:, 1:], writes, num_slots)

    @property
    def are_single_tokens(self) -> bool:
        """Whether every sequence goes on by one token."""
        return _are_single_tokens(self.uses, self.query_starts)


def _are_single_tokens(uses: Sequence[StateUse], query_starts: Sequence[int]) -> bool:
    lengths = (end - start for start, end in pairwise(query_starts))
    return all(length == 1 and use.read is not None for length, use in zip(lengths, uses, strict=True))
