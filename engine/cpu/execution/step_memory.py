"""Memory that compiled steps write: buffers of a step's tokens, and buffers of each thread."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from engine.cpu.gemm.code_rows import CODE_GROUP, GROUP_BYTES
from engine.cpu.gemm.matrix_unit import CUT_BYTES, TILE_ROWS
from engine.cpu.gemm.pair_tiles import PAIR_BYTES
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.work_queue import CHUNK
from engine.cpu.multi_step.further_step import MOST_TOGETHER
from engine.models.config.config import ModelConfig

TOGETHER = 128
"""Maximum number of tokens computed together; more do not fit a core's cache beside the weights."""


class StepMemory:
    """Owner of the buffers of all steps, which share them, so only one step may run at a time."""

    def __init__(
        self, config: ModelConfig, step: npt.NDArray[Any], *, are_inputs_rounded: bool, has_unit: bool
    ) -> None:
        """Allocate the buffers of tokens, and write their addresses into a STEP record."""
        self._config = config
        self._step = step
        experts = config.traits.experts
        num_picks = 0 if experts is None else experts.num_chosen + (experts.shared_size is not None)
        of_expert = 0 if experts is None else max(experts.size, experts.shared_size or 0)
        attended_size, recurrent = config.num_heads * config.head_dim, config.traits.recurrent
        num_mixed = 0 if recurrent is None else recurrent.num_value_heads * recurrent.value_dim
        widest = max(config.hidden_size, config.intermediate_size, of_expert, attended_size, num_mixed)
        of_codes = -(-widest // CODE_GROUP) * GROUP_BYTES if are_inputs_rounded else 0
        of_codes = max(of_codes, PAIR_BYTES // 2 * widest)
        # The matrix unit reads and writes whole tiles.
        self._num_rows = TOGETHER + TILE_ROWS if has_unit else TOGETHER
        self._codes_size = self._num_rows * max(of_codes, CUT_BYTES * widest if has_unit else 0)
        widths = {
            "residual": config.hidden_size,
            "sampled_residual": config.hidden_size,
            "qkv": attended_size + 2 * config.num_kv_heads * config.head_dim,
            "attended": max(attended_size, num_mixed),
            "gated": max(config.intermediate_size, num_picks * of_expert),
            "branch": config.hidden_size,
            "channels": 0 if recurrent is None else recurrent.num_channels,
            "gates": max(attended_size if config.traits.has_output_gate else 0, num_mixed),
            "rates": 0 if recurrent is None else 2 * recurrent.num_value_heads,
            "shares": num_picks,
            "expert_outputs": num_picks * config.hidden_size,
        }
        self._of_tokens = {name: torch.empty(self._num_rows, width) for name, width in widths.items()}
        self._chosen_experts = torch.zeros(self._num_rows, num_picks, dtype=torch.int64)
        step["chosen_experts"] = self._chosen_experts.data_ptr()
        # The first place of each expert and the end, then the picks, and a copy of the choices.
        num_experts = 0 if experts is None else experts.num_experts + 1
        self._expert_rows_size = num_experts + 1 + 2 * TOGETHER * num_picks if num_picks else 0
        # Earlier inputs of a convolution and its sums, or a query, a key and what the state returns.
        self._num_recurrent = 0
        if recurrent is not None:
            self._num_recurrent = max(recurrent.window * CHUNK, 2 * recurrent.key_dim + recurrent.value_dim)
        self._of_threads: tuple[torch.Tensor, ...] = ()
        self._num_threads = self._scratch_size = 0
        for name, buffer in self._of_tokens.items():
            step[name] = buffer.data_ptr()

    @property
    def residual(self) -> torch.Tensor:
        """Buffer of the tokens' residuals, float32 [tokens, hidden]."""
        return self._of_tokens["residual"]

    def reserve(self, num_threads: int, num_positions: int = 1, block_size: int = LANES) -> None:
        """Grow the buffers of threads for sequences of up to `num_positions` tokens, and write their addresses."""
        config = self._config
        num_queries = MOST_TOGETHER * config.num_heads // config.num_kv_heads
        # Scores, then queries and their sums.
        num_attended = num_queries * (num_positions + 2 * block_size + 2 * config.head_dim)
        size = max(2 * self._num_rows * CHUNK, num_attended, self._num_recurrent)
        if self._num_threads >= num_threads and self._scratch_size >= size:
            return
        self._num_threads, self._scratch_size = num_threads, 2 ** (size - 1).bit_length()
        scratch = torch.empty(num_threads, self._scratch_size)
        normed = torch.empty(num_threads, TOGETHER * config.hidden_size)
        codes = torch.empty(num_threads, self._codes_size, dtype=torch.uint8)
        rows = torch.empty(num_threads, self._expert_rows_size, dtype=torch.int64)
        inputs = torch.empty(num_threads, self._num_rows * config.hidden_size if self._expert_rows_size else 0)
        self._of_threads = scratch, normed, codes, rows, inputs
        step = self._step
        step["scratch"], step["scratch_size"] = scratch.data_ptr(), self._scratch_size
        step["normed"] = normed.data_ptr()
        step["expert_rows"], step["expert_rows_size"] = rows.data_ptr(), self._expert_rows_size
        step["expert_inputs"] = inputs.data_ptr()
        step["codes"], step["codes_size"] = codes.data_ptr(), self._codes_size
