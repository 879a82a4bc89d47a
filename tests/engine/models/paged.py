"""Runs a model over a paged pool the way a step loop does, with block tables chosen by the test."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, ForwardContext
from engine.attention.step_states import StepStates
from engine.attention.torch_attention import TorchAttention
from engine.config import Quantization
from engine.cpu.execution.model import CompiledModel
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.step.prompt_mode import MAX_TOKENS
from engine.kv_cache.state_slots import StateRequest, StateSlots
from engine.models.decoder import Decoder, Model
from engine.models.layer_ops import LayerOps
from engine.models.loading.loader import load_model

CPU = torch.device("cpu")


def compile_model(
    model: Model,
    backend: AttentionBackend,
    kv_dtype: torch.dtype = torch.float32,
) -> CompiledModel:
    """The model with compiled steps. Raises NotCompilable."""
    assert isinstance(model, Decoder)
    assert isinstance(backend, TorchAttention)
    return CompiledModel(model, backend, kv_dtype)


@dataclass
class Row:
    """One sequence: its tokens, how many are computed, where its blocks are, the index of its adapter."""

    tokens: list[int]
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    adapter: int | None = None
    seq_id: int = field(default_factory=itertools.count().__next__)


class PagedRunner:
    """Owns a pool; hands out blocks in ascending order, or shuffled by a seed."""

    def __init__(
        self,
        model_dir: Path,
        *,
        num_blocks: int = 96,
        block_size: int = 0,
        shuffle_seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        backend: AttentionBackend | None = None,
        ops: LayerOps | None = None,
        max_model_len: int = 0,
        compiled_threads: int = 0,
        kv_dtype: torch.dtype = torch.float32,
        quantization: Quantization = "none",
        pairs_inputs: bool = False,
    ) -> None:
        """`block_size`: 0: 8, or the smallest that compiled steps read. `compiled_threads`: on which steps of up to 64
        tokens run compiled; 0: none does."""
        block_size = block_size or (LANES if compiled_threads else 8)
        backend = backend or TorchAttention(CPU)
        self.model: Model = load_model(
            model_dir,
            dtype=dtype,
            device=CPU,
            backend=backend,
            quantization=quantization,
            ops=ops,
            max_model_len=max_model_len,
            packer=RecordMemory(pairs_inputs=pairs_inputs) if compiled_threads else None,
        )
        if compiled_threads:
            self.model = compiled = compile_model(self.model, backend, kv_dtype)
            compiled.resize(compiled_threads)
            compiled.max_tokens = MAX_TOKENS
        self.caches = [backend.allocate(num_blocks, block_size, spec, dtype) for spec in self.model.attention_specs]
        self.block_size = block_size
        self.with_sampled = True
        """Whether the model is given that logits of all tokens will be requested, as they always are."""
        has_states = self.model.config.traits.recurrent is not None
        self.states = StateSlots(8, self.block_size) if has_states else None
        self._free = list(range(num_blocks))
        if shuffle_seed is not None:
            random.Random(shuffle_seed).shuffle(self._free)

    def step(self, work: list[tuple[Row, int]], num_sampled: list[int] | None = None) -> list[torch.Tensor]:
        """Compute the next n tokens of each row; logits [n, vocab] per row, or of its last `num_sampled` alone."""
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        requests = [StateRequest(r.seq_id, r.blocks, r.num_computed, r.num_computed + count) for r, count in work]
        for row, count in work:
            end = row.num_computed + count
            while len(row.blocks) * self.block_size < end:
                row.blocks.append(self._free.pop(0))
            for position in range(row.num_computed, end):
                token_ids.append(row.tokens[position])
                positions.append(position)
                slots.append(row.blocks[position // self.block_size] * self.block_size + position % self.block_size)
            row.num_computed = end
            starts.append(len(token_ids))
        width = max(len(row.blocks) for row, _ in work)
        recurrent, states = self.model.config.traits.recurrent, None
        if self.states is not None and recurrent is not None:
            states = StepStates.of(self.states.plan(requests), starts, recurrent.window, CPU)
        context = ForwardContext(
            positions=torch.tensor(positions),
            slot_mapping=torch.tensor(slots),
            query_starts=starts,
            context_lens=[row.num_computed for row, _ in work],
            block_tables=torch.tensor([row.blocks + [0] * (width - len(row.blocks)) for row, _ in work]),
            block_size=self.block_size,
            sampled=list(range(starts[-1])) if self.with_sampled else None,
            adapters=[row.adapter for row, _ in work] if any(row.adapter is not None for row, _ in work) else None,
            states=states,
        )
        if num_sampled is not None:
            counts = zip(starts[1:], num_sampled, strict=True)
            context = replace(context, sampled=[at for end, count in counts for at in range(end - count, end)])
        hidden = self.model.forward(torch.tensor(token_ids), context, self.caches)
        if num_sampled is not None:
            assert context.sampled is not None
            if hidden.shape[0] != len(context.sampled):
                hidden = hidden[context.sampled]
            starts = [0, *itertools.accumulate(num_sampled)]
        logits = self.model.logits(hidden)
        return [logits[start:end] for start, end in itertools.pairwise(starts)]

    def prefill(self, row: Row, chunk_sizes: list[int]) -> torch.Tensor:
        """Logits [tokens, vocab] of all uncomputed tokens, computed in chunks of these sizes (cycled)."""
        parts = []
        index = 0
        while row.num_computed < len(row.tokens):
            count = min(chunk_sizes[index % len(chunk_sizes)], len(row.tokens) - row.num_computed)
            parts.append(self.step([(row, count)])[0])
            index += 1
        return torch.cat(parts)
