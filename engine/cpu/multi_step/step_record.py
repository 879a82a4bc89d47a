"""Record of the further steps that follow a compiled step in the same call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.cpu.jit.layout import GROUP, MULTI_STEP, ROW_LIMITS, STEP_COSTS, STEP_LOG
from engine.cpu.multi_step.ngram import NUM_LISTED
from engine.models.decoder import Decoder
from engine.models.multi_step import DraftTables, MultiStepOrder, MultiStepReport, StepTaken

_MAX_FURTHER_STEPS = 8
_INT = np.int64
_NUM_FIELDS = (MULTI_STEP.names or ()).index("local_turns") + 1
"""Number of leading fields that differ from step to step."""


class MultiStepRecord:
    """Writer of the MULTI_STEP record of a step, and reader of its results."""

    def __init__(self, record: npt.NDArray[Any], decoder: Decoder, *, max_num_seqs: int, max_tokens: int) -> None:
        """Wrap a MULTI_STEP record for steps of at most `max_num_seqs` rows and `max_tokens` tokens."""
        self.max_num_seqs = max_num_seqs
        config = decoder.config
        self._record = record
        self._fields = record.view(_INT)
        self._is_open = False
        self._decoder = decoder
        self._max_tokens = max_tokens
        self._retained: tuple[MultiStepOrder, torch.Tensor, torch.Tensor] | None = None
        """Objects whose addresses are in the record, so that they stay alive."""
        self._tables: DraftTables | None = None
        self._order: MultiStepOrder | None = None
        self._known: tuple[npt.NDArray[Any], ...] = (np.empty(0),) * 6
        self._addresses: list[int] = []
        """Addresses of the last order's arrays; valid again if the next order has the same arrays."""
        self._lengths: list[int] = []
        """Length of each text before the step, in tokens."""
        self._limits, self._counts = np.zeros(max_num_seqs, dtype=ROW_LIMITS), np.zeros(max_num_seqs, dtype=_INT)
        self._costs = np.zeros(1, dtype=STEP_COSTS)
        self._log = np.zeros(_MAX_FURTHER_STEPS, dtype=STEP_LOG)
        self._texts = np.zeros((max_num_seqs, 0), dtype=_INT)
        self._token_ids, self._positions, self._slots, self._window_slots = np.zeros((4, max_tokens), dtype=_INT)
        self._groups, self._sampled = np.zeros(max_tokens, dtype=GROUP), np.arange(max_tokens)
        self._rotations, self._local_rotations = torch.empty(2, max_tokens, config.head_dim)
        self._hidden = torch.empty(max_tokens, config.hidden_size)
        self._logits = torch.empty(max_tokens, config.vocab_size)
        self._set(
            num_listed=NUM_LISTED,
            limits=self._limits.ctypes.data,
            counts=self._counts.ctypes.data,
            costs=self._costs.ctypes.data,
            log=self._log.ctypes.data,
            token_ids=self._token_ids.ctypes.data,
            positions=self._positions.ctypes.data,
            slots=self._slots.ctypes.data,
            window_slots=self._window_slots.ctypes.data,
            groups=self._groups.ctypes.data,
            sampled=self._sampled.ctypes.data,
            rotations=self._rotations.data_ptr(),
            local_rotations=self._local_rotations.data_ptr(),
            hidden=self._hidden.data_ptr(),
            logits=self._logits.data_ptr(),
        )

    def begin(self, tables: DraftTables) -> None:
        """Take draft tokens from these tables from now on."""
        self._tables = tables
        keys, values = tables.memory
        self._set(
            memory_keys=keys.ctypes.data,
            memory_values=values.ctypes.data,
            memory_size=keys.size,
            trials=tables.trials.ctypes.data,
            acceptance_rates=tables.acceptance_rates.ctypes.data,
            num_kinds=tables.acceptance_rates.size,
            kinds=tables.kinds.ctypes.data,
            head_kind=tables.head_kind,
            decay=tables.decay,
        )

    def order(self, order: MultiStepOrder) -> None:
        """Request further steps behind the next step, provided that heads run within it."""
        self._order = order

    def close(self) -> None:
        """Cancel the further steps behind the next step."""
        if self._is_open:
            self._is_open = False
            self._fields[:2] = 0

    def open(self, table_rows: Sequence[int], max_tokens: int) -> int:
        """Write the further steps behind a step into the record; return the longest length that a text may reach.

        The result is 0 if no step follows.

        Args:
            table_rows: Block table row of each row that chooses a token, in a step within which heads run.
            max_tokens: Maximum number of tokens of a further step.
        """
        self.close()
        order, self._order = self._order, None
        num_rows = len(table_rows)
        if order is None or len(order.ends_at) != num_rows:
            return 0
        self._lengths = order.lengths
        limits = zip(table_rows, order.ends_at, order.drafts_until, strict=True)
        self._limits[:num_rows] = [(row, end, until, 0, 0, 0) for row, end, until in limits]
        self._costs[0] = order.costs
        longest = max(order.ends_at)
        if self._texts.shape[1] < longest:
            self._texts = np.empty((self.max_num_seqs, 2 ** (longest - 1).bit_length()), dtype=_INT)
        turns, local_turns = self._decoder.rotation_tables(longest)
        tokens = order.found[0]
        arrays = order.rows, order.stops, *order.found, self._texts
        if any(array is not known for array, known in zip(arrays, self._known, strict=True)):
            self._known, self._addresses = arrays, [_address(array) for array in arrays]
        rows, stops, *found, texts = self._addresses
        self._retained = order, turns, local_turns
        self._fields[:_NUM_FIELDS] = (
            min(order.max_steps, _MAX_FURTHER_STEPS),
            0,
            time.monotonic_ns(),
            0,
            int(1e9 * order.max_seconds),
            num_rows,
            rows,
            stops,
            order.stops.size,
            texts,
            self._texts.shape[1],
            *found,
            tokens.shape[1],
            min(max_tokens, self._max_tokens),
            order.is_speculative,
            turns.data_ptr(),
            local_turns.data_ptr(),
        )
        self._is_open = True
        return longest

    def report(self) -> MultiStepReport | None:
        """Return the output tokens of all steps, the first one included, once; None if no step followed it."""
        num_done = self._num_done
        self.close()
        self._order = None  # if it was not opened, it was for another step
        if num_done < 2 or self._retained is None:
            return None
        ends = self._retained[0].rows["length"][: len(self._lengths)].tolist()
        token_ids = [
            self._texts[row, start:end].tolist()
            for row, (start, end) in enumerate(zip(self._lengths, ends, strict=True))
        ]
        steps = [StepTaken(1e-9 * nanoseconds, num_drafts) for nanoseconds, num_drafts in self._log[:num_done].tolist()]
        limits = self._limits[: len(token_ids)]
        predicted = list(zip(limits["num_predicted_right"].tolist(), limits["num_predicted"].tolist(), strict=True))
        return MultiStepReport(token_ids, limits["num_verified"].tolist(), steps, predicted)

    @property
    def _num_done(self) -> int:
        """Number of steps that were computed, the first one included."""
        return int(self._fields[1]) if self._is_open else 0

    def _set(self, **fields: float) -> None:
        for name, value in fields.items():
            self._record[name] = value


def _address(array: npt.NDArray[Any]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found
