"""Medusa heads of a compiled model, executed by the same threads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.cpu.execution.model import CompiledModel
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import AHEAD_WORK
from engine.cpu.jit.work_queue import CHUNK
from engine.cpu.multi_step.further_step import follow_step
from engine.cpu.multi_step.medusa import run_heads
from engine.cpu.multi_step.step_record import MultiStepRecord
from engine.cpu.step.prompt_mode import MAX_TOKENS
from engine.models.prediction_heads import HeadPredictions, PredictionHeads, StepPredictions
from engine.models.raw_weights import RawWeight
from engine.quantization.weights import quantize_channels

_MAX_FUSED_SEQS = 8
"""Maximum number of rows for which the heads run within the step's call."""


class CompiledHeads:
    """Medusa heads with int8 weights, which halve the bytes to read; verification makes the rounding harmless.

    Where steps do not run compiled, the original heads are computed instead.
    """

    def __init__(self, model: CompiledModel, heads: PredictionHeads) -> None:
        self.num_heads = heads.num_heads
        self._heads = heads
        self._model = model
        self._memory = RecordMemory()
        weights, hidden_size = heads.weights, model.config.hidden_size
        width = weights.gate_up.shape[0] // 2
        is_possible = model.has_embedding and hidden_size % CHUNK == 0 and width % LANES == 0
        self._max_tokens = MAX_TOKENS // max(2, self.num_heads) if is_possible else 0
        if is_possible:
            model.shape["ahead"] = (
                self.num_heads,
                self._memory.address(weights.hidden_norm),
                self._memory.address(weights.token_norm),
                self._memory.projection(_in_int8(weights.gate_up)),
                self._memory.projection(_in_int8(weights.down)),
                self._memory.address(weights.skip),
                self._memory.address(weights.norms),
            )
        self._embedded, self._gated, self._states, self._head_inputs = (
            torch.empty(self._max_tokens, size) for size in (hidden_size, width, weights.down.shape[0], hidden_size)
        )
        # Buffers of heads within a step: row starts, stop tokens, chosen tokens, and the predictions behind them.
        self._starts = np.zeros(_MAX_FUSED_SEQS + 1, dtype=np.int64)
        self._stops = np.zeros(0, dtype=np.int64)
        self._stop_token_ids: tuple[int, ...] = ()
        self._chosen = np.zeros(_MAX_FUSED_SEQS, dtype=np.int64)
        self._predicted = np.zeros(2 * _MAX_FUSED_SEQS * self.num_heads, dtype=np.int64)
        self._fused_logits = torch.empty(_MAX_FUSED_SEQS * self.num_heads, model.config.vocab_size)
        self._fused_normed = torch.empty(0)
        self._num_fused = 0
        self._runs_heads = True
        self._taken = np.zeros(_MAX_FUSED_SEQS, dtype=np.int64)
        self.multi_step = MultiStepRecord(
            model.multi_step, model.decoder, max_num_seqs=_MAX_FUSED_SEQS, max_tokens=MAX_TOKENS
        )
        """Steps that may follow one within which the heads run."""
        model.heads_in_step = self
        step = model.step
        # Addresses that never change are set once.
        step["heads"] = run_heads.address
        model.multi_step["follow"] = follow_step.address
        step["embedded"] = self._embedded.data_ptr()
        step["ahead_gated"] = self._gated.data_ptr()
        step["ahead_states"] = self._states.data_ptr()
        step["row_starts"] = self._starts.ctypes.data
        step["chosen"] = self._chosen.ctypes.data
        step["taken"] = self._taken.ctypes.data
        step["predicted"] = self._predicted.ctypes.data
        step["head_inputs"] = self._head_inputs.data_ptr()
        step["ahead_logits"] = self._fused_logits.data_ptr()

    def predict_logits(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, heads, vocab], of hidden states [N, hidden] and chosen tokens int64 [N]."""
        model, num_tokens = self._model, hidden.shape[0]
        if num_tokens > self._max_tokens or not model.runs_compiled(num_tokens):
            return self._heads.predict_logits(hidden, token_ids)
        embedded = self._embedded[:num_tokens]
        model.decoder.embedding.into(token_ids, embedded)
        model.make_room()
        logits = torch.empty(num_tokens, self.num_heads, model.config.vocab_size)
        step = model.step
        step["work"] = AHEAD_WORK
        step["num_tokens"] = num_tokens
        step["hidden"] = hidden.data_ptr()
        step["logits"] = logits.data_ptr()
        model.thread_pool.run()
        return logits

    def arrange(self, num_seqs: int, stop_token_ids: Sequence[int], *, runs_heads: bool = True) -> bool:
        """Arrange for the heads to run within the next step's call, if the step has `num_seqs` greedy rows.

        Args:
            num_seqs: Rows of the step; 0: the heads do not run.
            stop_token_ids: Tokens that end an answer; the heads do not run if every row chooses one.
            runs_heads: False to choose the tokens within the call without running the heads.

        Returns:
            True if the heads can run for so many rows.
        """
        is_possible = 0 < num_seqs <= min(_MAX_FUSED_SEQS, self._max_tokens)
        self._num_fused = num_seqs if is_possible else 0
        self._runs_heads = runs_heads
        self._predicted[0] = -1
        if is_possible and stop_token_ids != self._stop_token_ids:
            self._stop_token_ids = tuple(stop_token_ids)
            self._stops = np.array(stop_token_ids, dtype=np.int64)
            step = self._model.step
            step["stops"] = self._stops.ctypes.data
            step["num_stops"] = self._stops.size
        return is_possible

    def open(
        self, token_ids: torch.Tensor, query_starts: Sequence[int], sampled: Sequence[int]
    ) -> tuple[int, bool, int]:
        """Set the step record's fields for the heads.

        Returns:
            The number of rows (0: none), whether the heads run, and the longest text that the following steps of the
            call may reach (0: no steps follow).
        """
        if not self._num_fused:
            return 0, False, 0
        starts = [bisect_left(sampled, start) for start in query_starts]
        # Some rows sample no token.
        rows = [row for row, (start, end) in enumerate(pairwise(starts)) if start < end]
        num_seqs, model, step = len(rows), self._model, self._model.step
        if num_seqs != self._num_fused:
            return 0, False, 0
        if self._fused_normed.shape[0] < model.thread_pool.max_threads:
            size = _MAX_FUSED_SEQS * max(2, self.num_heads) * model.config.hidden_size
            self._fused_normed = torch.empty(model.thread_pool.max_threads, size)
            step["head_normed"] = self._fused_normed.data_ptr()
        self._starts[: num_seqs + 1] = [*(starts[row] for row in rows), starts[-1]]
        step["token_ids"] = token_ids.data_ptr()
        return num_seqs, self._runs_heads, self.multi_step.open(rows, model.max_tokens)

    def step_predictions(self) -> StepPredictions | None:
        """Return the predictions made within the last step's call, once; None if there are none."""
        num_seqs, self._num_fused = self._num_fused, 0
        if not num_seqs or self._predicted[0] < 0 or not self._runs_heads:
            return None
        shape = 2, num_seqs, self.num_heads
        predicted: npt.NDArray[Any] = self._predicted[: 2 * num_seqs * self.num_heads].reshape(shape).copy()
        self._predicted[0] = -1
        return StepPredictions(self._chosen[:num_seqs].tolist(), HeadPredictions(predicted[0], predicted[1]))


def _in_int8(weight: torch.Tensor) -> RawWeight:
    found = quantize_channels(weight)
    return RawWeight(found.codes, found.scales, None)
