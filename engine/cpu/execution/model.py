"""Compiled model: steps of few tokens, and prompts, on the matrix unit where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from engine.attention.base import ForwardContext, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import HeadMajorKVCache
from engine.cpu.attention.attention import ATTENTION
from engine.cpu.execution.model_records import ModelRecords
from engine.cpu.execution.prompt_rows import cut_evenly, has_prompts, split_rows
from engine.cpu.execution.state_rows import StateRows, picked, rows_between, rows_of
from engine.cpu.execution.step_memory import TOGETHER, StepMemory
from engine.cpu.execution.thread_pool import ThreadPool, aligned_integers
from engine.cpu.execution.token_groups import TokenGroups
from engine.cpu.gemm.matrix_unit import configuration
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import LAYERS_WORK, LOGITS_WORK, MULTI_STEP, STEP
from engine.cpu.jit.work_queue import PHASE_BYTES
from engine.cpu.multi_step.further_step import EVEN_SHARES
from engine.cpu.multi_step.medusa import AHEAD_PHASES
from engine.cpu.step.decoding import PHASES_PER_LAYER
from engine.cpu.step.prompt_mode import PromptWay
from engine.models.decoder import Decoder

_FEW = 16
"""Number of tokens above which a sequence counts as a prompt; the matrix unit is faster from there on."""
_NUM_STEP_FIELDS = (STEP.names or ()).index("runs_heads") + 1
"""Number of leading fields that differ from step to step."""


class HeadsInStep(Protocol):
    """Heads that run within a step's call."""

    def open(
        self, token_ids: torch.Tensor, query_starts: Sequence[int], sampled: Sequence[int]
    ) -> tuple[int, bool, int]:
        """Set the step record's fields for the heads.

        Returns:
            The number of rows (0: none), whether the heads run, and the longest text that the following steps of the
            call may reach (0: no steps follow).
        """
        ...


class CompiledModel:
    """Float32 decoder on a CPU with compiled steps. All steps share buffers, so only one may run at a time."""

    def __init__(
        self,
        decoder: Decoder,
        backend: TorchAttention,
        kv_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the records of the model, and make the backend's pools head-major in `kv_dtype`.

        Args:
            decoder: Model in float32, loaded with a packer of its weights.
            backend: Attention backend, whose pools are used.
            kv_dtype: float32 or bfloat16.

        Raises:
            NotCompilable: The model has a property that compiled steps do not support.
        """
        self.config = decoder.config
        self.attention_specs = decoder.attention_specs
        self.decoder = decoder
        self._backend = backend
        self._records = records = ModelRecords(decoder)
        self.shape = records.model
        self.shape["attention"] = ATTENTION[kv_dtype.itemsize].address
        self.step = np.zeros(1, dtype=STEP)
        self.step["norm"] = records.norm
        self.has_embedding = decoder.embedding.table.dtype in (torch.float32, torch.bfloat16)
        """True if compiled code can read the embeddings, as heads within a step do."""
        self.step["embedding"] = decoder.embedding.table.data_ptr()
        self.step["embedding_bytes"] = decoder.embedding.table.itemsize
        self._fields = self.step.view(np.int64)
        self._memory = StepMemory(
            self.config, self.step, are_inputs_rounded=records.are_inputs_rounded, has_unit=records.has_unit
        )
        queue_size = PHASE_BYTES // 8 * (PHASES_PER_LAYER * len(decoder.layers) + 1 + AHEAD_PHASES)
        self.multi_step = np.zeros(1, dtype=MULTI_STEP)
        work_queue = aligned_integers(queue_size)
        self.thread_pool = ThreadPool(self.shape, records.layers, self.step, self.multi_step, work_queue)
        self._every = np.arange(TOGETHER)
        self._sampled = np.zeros(TOGETHER, dtype=np.int64)
        self._groups = TokenGroups(TOGETHER)
        self._unit = configuration()
        self.max_tokens = 0
        """Maximum number of tokens of a compiled step by rows; 0: none runs compiled."""
        self.prompt_way: PromptWay = "torch"
        """Mode of prompts: of steps with more tokens than `max_tokens`, and of long sequences in others."""
        self.max_verified = 0
        """Maximum number of tokens of a verified sequence, computed with the same numbers as one by one."""
        self._caches: list[KVCache] | None = None
        self._suits = False
        # Hidden states of the last step, and the logits computed with them.
        self._last_logits: tuple[torch.Tensor, torch.Tensor] | None = None
        self.heads_in_step: HeadsInStep | None = None
        """Heads that run within the call of a step whose tokens are all sampled; None: no heads."""
        backend.head_major = kv_dtype

    @property
    def products(self) -> dict[str, int]:
        """Number of projections by the kind of their products."""
        return self._records.products()

    def resize(self, num_threads: int) -> None:
        """Set the number of threads."""
        self.thread_pool.resize(num_threads)

    def close(self) -> None:
        """End the threads."""
        self.thread_pool.close()

    @property
    def prompt_ways(self) -> list[PromptWay]:
        """Prompt modes that this machine supports."""
        return ["torch", "vectors", "matrix unit"] if self._records.has_unit else ["torch", "vectors"]

    def runs_compiled(self, num_tokens: int) -> bool:
        """Return whether `num_tokens` tokens run compiled together."""
        return num_tokens <= self.max_tokens

    def computes(self, num_tokens: int) -> bool:
        """Return whether steps of `num_tokens` tokens run compiled, all of them."""
        return self.runs_compiled(num_tokens) or self.prompt_way != "torch"

    def takes(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> bool:
        """Return whether a step runs compiled."""
        if not self.computes(token_ids.shape[0]):
            return False
        if context.on_device is not None or context.block_size % LANES:
            return False
        if caches is not self._caches:
            self._take_up(caches, context.block_size)
        return self._suits

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Compute final hidden states, and logits in the same call.

        Args:
            token_ids: int64 [T].
            context: Positions, KV slots and sampled tokens of the step.
            caches: One cache for each layer.

        Returns:
            Hidden states [T, hidden], or of the sampled tokens alone if the context names them.
        """
        self._last_logits = None
        if not self.takes(token_ids, context, caches):
            return self.decoder.forward(token_ids, context, caches)
        self._backend.pass_over()
        num_tokens = token_ids.shape[0]
        states = self._open_states(context)
        num_found = num_tokens if context.sampled is None else len(context.sampled)
        hidden = torch.empty(num_found, self.config.hidden_size)
        few = max(_FEW, self.max_verified)
        if self.prompt_way == "matrix unit" and (not self.runs_compiled(num_tokens) or has_prompts(context, few)):
            for part in split_rows(context, few, self.max_tokens):
                found = torch.empty(part.places.shape[0], self.config.hidden_size)
                of_part = token_ids.index_select(0, part.tokens)
                of_rows = None if states is None else picked(states, part.rows)
                self._forward_parts(of_part, part.context, found, None, of_rows, on_unit=part.has_prompts)
                hidden.index_copy_(0, part.places, found)
            return hidden
        logits = None
        if context.sampled is not None:
            logits = torch.empty(num_found, self.config.vocab_size)
            self._last_logits = hidden, logits
        self._forward_parts(token_ids, context, hidden, logits, states)
        return hidden

    def _open_states(self, context: ForwardContext) -> StateRows | None:
        """Return the records of a step's recurrent states, whose memory is there then; None: the model has none.

        Raises:
            RuntimeError: The context names no states.
        """
        if self.config.traits.recurrent is None:
            return None
        if context.states is None:
            raise RuntimeError("recurrent layers need the states of the step's sequences")
        self._records.reserve_states(context.states.num_slots)
        return rows_of(context.states, context.query_starts)

    def _forward_parts(
        self,
        token_ids: torch.Tensor,
        context: ForwardContext,
        hidden: torch.Tensor,
        logits: torch.Tensor | None,
        states: StateRows | None,
        *,
        on_unit: bool = False,
    ) -> None:
        """Compute hidden states, and logits if requested, as many tokens at a time as fit the buffers."""
        if token_ids.shape[0] <= TOGETHER:
            self._forward_rows(token_ids, context, hidden, logits, states, on_unit=on_unit)
            return
        found = 0
        for start, end, part in cut_evenly(context, TOGETHER):
            behind = found + (end - start if part.sampled is None else len(part.sampled))
            of_part = None if logits is None else logits[found:behind]
            of_rows = None if states is None else rows_between(states, start, end)
            self._forward_rows(token_ids[start:end], part, hidden[found:behind], of_part, of_rows, on_unit=on_unit)
            found = behind

    def _forward_rows(
        self,
        token_ids: torch.Tensor,
        context: ForwardContext,
        hidden: torch.Tensor,
        logits: torch.Tensor | None,
        states: StateRows | None,
        *,
        on_unit: bool,
    ) -> None:
        """Compute hidden states, and logits if requested, of tokens that are computed together."""
        num_tokens, num_positions = token_ids.shape[0], max(context.context_lens)
        self.decoder.embedding.into(token_ids, self._memory.residual[:num_tokens])
        tables = self.decoder.rotation_tables(num_positions)
        rotations = tables[0].index_select(0, context.positions)
        local_rotations = rotations if tables[1] is tables[0] else tables[1].index_select(0, context.positions)
        window_slots = context.slot_mapping if context.window_slots is None else context.window_slots
        window_tables = context.block_tables if context.window_tables is None else context.window_tables
        groups = self._groups.of(context)
        sampled_groups = groups
        sampled, num_sampled, num_head_rows, runs_heads, num_reached = self._every, num_tokens, 0, False, 0
        if context.sampled is not None:
            sampled, num_sampled = self._sampled, len(context.sampled)
            sampled[:num_sampled] = context.sampled
            if num_sampled < num_tokens:
                sampled_groups = self._groups.of_sampled(context)
            if logits is not None and self.heads_in_step is not None:
                opened = self.heads_in_step.open(token_ids, context.query_starts, context.sampled)
                num_head_rows, runs_heads, num_reached = opened
        self._memory.reserve(self.thread_pool.max_threads, max(num_positions, num_reached), context.block_size)
        # Tests on other processors compute prompts apart, but without the unit.
        has_unit = on_unit and self._records.has_unit
        self._fields[:_NUM_STEP_FIELDS] = (
            LAYERS_WORK,
            len(self.decoder.layers) if has_unit else 0,
            self._unit.ctypes.data if has_unit else 0,
            num_tokens,
            context.positions.data_ptr(),
            context.slot_mapping.data_ptr(),
            context.block_tables.data_ptr(),
            context.block_tables.shape[1],
            window_slots.data_ptr(),
            window_tables.data_ptr(),
            groups.ctypes.data,
            groups.size,
            sampled_groups.ctypes.data,
            sampled_groups.size,
            0 if states is None else states.ctypes.data,
            0 if states is None else states.size,
            self._heads_together(context.context_lens),
            rotations.data_ptr(),
            local_rotations.data_ptr(),
            sampled.ctypes.data,
            num_sampled,
            hidden.data_ptr(),
            logits.data_ptr() if logits is not None and num_sampled else 0,
            num_head_rows,
            runs_heads,
        )
        self.thread_pool.run()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        if self._last_logits is not None and self._last_logits[0] is hidden:
            return self._last_logits[1]
        hidden = hidden.contiguous()
        logits = torch.empty(hidden.shape[0], self.config.vocab_size)
        self.make_room()
        for start in range(0, hidden.shape[0], TOGETHER):
            part = hidden[start : start + TOGETHER]
            self.step["work"] = LOGITS_WORK
            self.step["num_tokens"] = part.shape[0]
            self.step["hidden"] = part.data_ptr()
            self.step["logits"] = logits[start:].data_ptr()
            self.thread_pool.run()
        return logits

    def make_room(self) -> None:
        """Allocate the threads' buffers, for work before the first step."""
        self._memory.reserve(self.thread_pool.max_threads)

    def _heads_together(self, context_lens: list[int]) -> int:
        """Return the number of adjacent KV heads per chunk: all, or 1 if one sequence is most of the work."""
        is_even = max(context_lens) * EVEN_SHARES <= sum(context_lens)
        return self.config.num_kv_heads if is_even else 1

    def _take_up(self, caches: list[KVCache], block_size: int) -> None:
        """Store the addresses of another KV pool."""
        self._caches = caches
        found = [cache for cache in caches if isinstance(cache, HeadMajorKVCache)]
        self._suits = len(found) == len(caches)
        if self._suits:
            # Layers for the matrix unit read the same pool.
            layers, attend = self._records.layers.reshape(-1, len(self.decoder.layers)), self._records.attention_layers
            layers["keys"][:, attend] = [cache.keys.data_ptr() for cache in found]
            layers["values"][:, attend] = [cache.values.data_ptr() for cache in found]
            layers["block_bytes"][:, attend] = [cache.keys.stride(0) * cache.keys.itemsize for cache in found]
            layers["is_windowed"][:, attend] = [cache.is_windowed for cache in found]
            self.shape["block_size"] = block_size
            kv_bytes = found[0].keys.itemsize
            self.shape["kv_bytes"], self.shape["attention"] = kv_bytes, ATTENTION[kv_bytes].address
