"""Compiled model: small steps by rows, and prompts by panels on the matrix unit, where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from engine.attention.base import ForwardContext, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import HeadMajorKVCache
from engine.cpu.execution.prompt_rows import PanelRoom, cut_evenly, has_prompts, panels_of, split_rows
from engine.cpu.execution.thread_pool import ThreadPool, aligned_integers
from engine.cpu.execution.token_groups import TokenGroups
from engine.cpu.gemm.matrix_unit import is_permitted
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.rounded_tiles import HEADER_BYTES
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import (
    AHEAD,
    LAYER,
    LAYERS_WORK,
    LOGITS_WORK,
    MODEL,
    PROJECTION,
    PROMPTS_WORK,
    ROUNDS,
    STEP,
)
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES
from engine.cpu.multi_step.further_step import EVEN_SHARES, MOST_TOGETHER
from engine.cpu.multi_step.medusa import AHEAD_PHASES
from engine.cpu.step.decoding import PHASES_PER_LAYER
from engine.cpu.step.prompt_mode import PromptWay
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.layers import RMSNorm
from engine.models.mlp import DenseMLP
from engine.models.raw_weights import RawWeights

_TOGETHER = 128
"""Maximum number of tokens computed together; more do not fit a core's cache beside the weights."""
_FEW = 16
"""Number of tokens above which a sequence counts as a prompt; the matrix unit's panels are faster from there on."""
_NUM_LAYERS_FIELDS = (STEP.names or ()).index("runs_heads") + 1


class NotCompilable(ValueError):
    """A property of the model that compiled steps do not support; the message names it."""


class HeadGlance(Protocol):
    """Heads that run within a step's call."""

    def open(
        self, token_ids: torch.Tensor, query_starts: Sequence[int], sampled: Sequence[int]
    ) -> tuple[int, bool, int]:
        """Set the step record's fields for the heads.

        Returns:
            The number of rows (0: none), whether the heads run, and the longest text that the following steps of the
                call may
            reach (0: no steps follow).
        """
        ...


class CompiledModel:
    """Float32 decoder on a CPU with compiled steps. All steps share buffers, so only one may run at a time."""

    def __init__(
        self,
        decoder: Decoder,
        backend: TorchAttention,
        weights: RawWeights,
        kv_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the records of the model, and make the backend's pools head-major in `kv_dtype`.

        Args:
            decoder: Model in float32.
            backend: Attention backend, whose pools are used.
            weights: Unpacked weights of the projections.
            kv_dtype: float32 or bfloat16.

        Raises:
            NotCompilable: The model has a property that compiled steps do not support.
        """
        self.config = decoder.config
        self.attention_specs = decoder.attention_specs
        self.decoder = decoder
        self._backend = backend
        self._memory = RecordMemory()
        layers = [self._layer(layer, weights) for layer in decoder.layers]
        self._layers = np.array(layers, dtype=LAYER)
        self.shape = np.array([self._shape(decoder, weights)], dtype=MODEL)
        self._norm = self._norm_weight(decoder.norm)
        traits = self.config.traits
        self.has_head = traits.logit_softcap is None and self.shape["head"]["packed"][0] != 0
        self.step = np.zeros(1, dtype=STEP)
        self._fields = self.step.view(np.int64)
        queue_size = PHASE_BYTES // 8 * (PHASES_PER_LAYER * len(layers) + 1 + AHEAD_PHASES)
        self.rounds = np.zeros(1, dtype=ROUNDS)
        self.thread_pool = ThreadPool(self.shape, self._layers, self.step, self.rounds, aligned_integers(queue_size))
        self._buffers = self._make_buffers()
        self._scratch = torch.empty(0)
        self._normed = torch.empty(0)
        self._codes = torch.empty(0, 0, dtype=torch.uint8)
        in_layers = any(self._layers[name]["rounds"].any() for name in ("qkv", "output", "gate_up", "down"))
        self._rounds = in_layers or bool(self.shape["head"]["rounds"][0])
        """True if any projection rounds its inputs."""
        self._every = np.arange(_TOGETHER)
        self._sampled = np.zeros(_TOGETHER, dtype=np.int64)
        self._groups = TokenGroups(_TOGETHER)
        self._panels = PanelRoom(self.config)
        self.max_tokens = 0
        """Maximum number of tokens of a compiled step by rows; 0: none runs compiled."""
        self.prompt_way: PromptWay = "torch"
        """Mode of prompts: of steps with more tokens than `max_tokens`, and of long sequences in others."""
        self.max_verified = 0
        """Maximum number of tokens of a verified sequence, computed with the same numbers as one by one."""
        self._caches: list[KVCache] | None = None
        self._suits = False
        # Hidden states of the last step, and the logits computed with them.
        self._told: tuple[torch.Tensor, torch.Tensor] | None = None
        self.glance: HeadGlance | None = None
        """Heads that run within the call of a step whose tokens are all sampled; None: no heads."""
        backend.head_major = kv_dtype

    def resize(self, num_threads: int) -> None:
        """Set the number of threads."""
        self.thread_pool.resize(num_threads)

    def close(self) -> None:
        """End the threads."""
        self.thread_pool.close()

    @property
    def prompt_ways(self) -> list[PromptWay]:
        """Prompt modes that this machine supports."""
        # The matrix unit would multiply integer weights as bfloat16 and leave inputs unrounded.
        return ["torch", "vectors", "matrix unit"] if is_permitted() and not self._rounds else ["torch", "vectors"]

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
        self._told = None
        if not self.takes(token_ids, context, caches):
            return self.decoder.forward(token_ids, context, caches)
        self._backend.pass_over()
        num_tokens = token_ids.shape[0]
        few = max(_FEW, self.max_verified)
        is_split = not self.runs_compiled(num_tokens) or has_prompts(context, few)
        if self.prompt_way == "matrix unit" and is_split:
            hidden = torch.empty(num_tokens, self.config.hidden_size)
            self._forward_split(token_ids, context, few, hidden)
            return hidden
        num_found = num_tokens if context.sampled is None else len(context.sampled)
        hidden = torch.empty(num_found, self.config.hidden_size)
        logits = None
        if self.has_head and context.sampled is not None:
            logits = torch.empty(num_found, self.config.vocab_size)
            self._told = hidden, logits
        if num_tokens <= _TOGETHER:
            self._forward_rows(token_ids, context, hidden, logits)
            return hidden
        found = 0
        for start, end, part in cut_evenly(context, _TOGETHER):
            behind = found + (end - start if part.sampled is None else len(part.sampled))
            of_part = None if logits is None else logits[found:behind]
            self._forward_rows(token_ids[start:end], part, hidden[found:behind], of_part)
            found = behind
        return hidden

    def _forward_split(self, token_ids: torch.Tensor, context: ForwardContext, few: int, hidden: torch.Tensor) -> None:
        """Compute final hidden states of a step with prompts by panels and short sequences by rows."""
        parts, prompts = split_rows(context, few, self.max_tokens)
        for part in parts:
            found = torch.empty(part.tokens.shape[0], self.config.hidden_size)
            self._forward_rows(token_ids.index_select(0, part.tokens), part.context, found)
            hidden.index_copy_(0, part.tokens, found)
        if prompts:
            self._forward_prompts(token_ids, context, prompts, hidden)

    def _forward_rows(
        self, token_ids: torch.Tensor, context: ForwardContext, hidden: torch.Tensor, logits: torch.Tensor | None = None
    ) -> None:
        """Compute hidden states, and logits if requested, of tokens that are computed together by rows."""
        num_tokens, num_positions = token_ids.shape[0], max(context.context_lens)
        residual, sampled_residual, qkv, attended, gated = self._buffers
        torch.index_select(self.decoder.embedding, 0, token_ids, out=residual[:num_tokens])
        rotations = self.decoder.rotary.at(context.positions, num_positions)
        groups = self._groups.of(context)
        sampled_groups = groups
        sampled, num_sampled, num_looking, runs_heads, num_reached = self._every, num_tokens, 0, False, 0
        if context.sampled is not None:
            sampled, num_sampled = self._sampled, len(context.sampled)
            sampled[:num_sampled] = context.sampled
            if num_sampled < num_tokens:
                sampled_groups = self._groups.of_sampled(context)
            if logits is not None and self.glance is not None:
                looked_at = self.glance.open(token_ids, context.query_starts, context.sampled)
                num_looking, runs_heads, num_reached = looked_at
        self._reserve(max(num_positions, num_reached), context.block_size)
        self._fields[:_NUM_LAYERS_FIELDS] = (
            LAYERS_WORK,
            num_tokens,
            context.positions.data_ptr(),
            context.slot_mapping.data_ptr(),
            context.block_tables.data_ptr(),
            context.block_tables.shape[1],
            groups.data_ptr(),
            groups.shape[0],
            sampled_groups.data_ptr(),
            sampled_groups.shape[0],
            sampled_residual.data_ptr(),
            self._heads_together(context.context_lens),
            rotations.data_ptr(),
            residual.data_ptr(),
            qkv.data_ptr(),
            attended.data_ptr(),
            gated.data_ptr(),
            self._normed.data_ptr(),
            self._scratch.data_ptr(),
            self._scratch.shape[1],
            self._codes.data_ptr(),
            self._codes.shape[1],
            self._norm,
            sampled.ctypes.data,
            num_sampled,
            hidden.data_ptr(),
            logits.data_ptr() if logits is not None and num_sampled else 0,
            num_looking,
            runs_heads,
        )
        self.thread_pool.run()

    def _forward_prompts(
        self, token_ids: torch.Tensor, context: ForwardContext, prompts: list[tuple[int, int]], hidden: torch.Tensor
    ) -> None:
        """Compute final hidden states of a step's prompts into their rows of `hidden`."""
        panels = panels_of(context, prompts, self.thread_pool.num_threads)
        embedded = self.decoder.embedding.index_select(0, token_ids)
        rotations = self.decoder.rotary.at(context.positions, max(context.context_lens))
        fields = self._panels.fields(len(panels), self.thread_pool.max_threads, context.block_size)
        fields |= {
            "work": PROMPTS_WORK,
            "positions": context.positions.data_ptr(),
            "slots": context.slot_mapping.data_ptr(),
            "tables": context.block_tables.data_ptr(),
            "table_width": context.block_tables.shape[1],
            "rotations": rotations.data_ptr(),
            "residual": embedded.data_ptr(),
            "panels": panels.ctypes.data,
            "norm": self._norm,
            "hidden": hidden.data_ptr(),
            # Tests on other processors run panels without the unit too.
            "has_unit": self.prompt_way == "matrix unit" and is_permitted(),
        }
        for name, value in fields.items():
            self.step[name] = value
        self.thread_pool.run()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        if self._told is not None and self._told[0] is hidden:
            return self._told[1]
        if not (self.has_head and self.runs_compiled(hidden.shape[0]) and hidden.is_contiguous()):
            return self.decoder.logits(hidden)
        logits = torch.empty(hidden.shape[0], self.config.vocab_size)
        self.make_room()
        self.step["work"] = LOGITS_WORK
        self.step["num_tokens"] = hidden.shape[0]
        self.step["hidden"] = hidden.data_ptr()
        self.step["logits"] = logits.data_ptr()
        self.thread_pool.run()
        return logits

    def make_room(self) -> None:
        """Allocate the threads' buffers, for work before the first step."""
        if self._scratch.shape[0] < self.thread_pool.max_threads:
            self._reserve(1, LANES)
            self.step["normed"] = self._normed.data_ptr()
            self.step["scratch"] = self._scratch.data_ptr()
            self.step["scratch_size"] = self._scratch.shape[1]
            self.step["codes"] = self._codes.data_ptr()
            self.step["codes_size"] = self._codes.shape[1]

    def _heads_together(self, context_lens: list[int]) -> int:
        """Return the number of adjacent KV heads per chunk: all, or 1 if one sequence is most of the work."""
        is_even = max(context_lens) * EVEN_SHARES <= sum(context_lens)
        return self.config.num_kv_heads if is_even else 1

    def _reserve(self, num_positions: int, block_size: int) -> None:
        """Grow the buffers of each thread."""
        config, num_threads = self.config, self.thread_pool.max_threads
        num_queries = MOST_TOGETHER * config.num_heads // config.num_kv_heads
        # Scores, then queries and their sums.
        num_attended = num_queries * (num_positions + 2 * block_size + 2 * config.head_dim)
        size = max(2 * _TOGETHER * CHUNK, num_attended)
        if self._scratch.shape[0] < num_threads or self._scratch.shape[1] < size:
            self._scratch = torch.empty(num_threads, 2 ** (size - 1).bit_length())
            self._normed = torch.empty(num_threads, _TOGETHER * config.hidden_size)
            widest = max(config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
            of_row = max(HEADER_BYTES + widest, 4 * widest) if self._rounds else 0
            self._codes = torch.empty(num_threads, _TOGETHER * of_row, dtype=torch.uint8)

    def _take_up(self, caches: list[KVCache], block_size: int) -> None:
        """Store the addresses of another KV pool."""
        self._caches = caches
        found = [cache for cache in caches if isinstance(cache, HeadMajorKVCache)]
        self._suits = len(found) == len(caches)
        if self._suits:
            self._layers["keys"] = [cache.keys.data_ptr() for cache in found]
            self._layers["values"] = [cache.values.data_ptr() for cache in found]
            self.shape["block_size"] = block_size
            self.shape["kv_bytes"] = found[0].keys.itemsize

    def _make_buffers(self) -> tuple[torch.Tensor, ...]:
        config = self.config
        attended_size = config.num_heads * config.head_dim
        widths = (
            config.hidden_size,
            config.hidden_size,
            attended_size + 2 * config.num_kv_heads * config.head_dim,
            attended_size,
            config.intermediate_size,
        )
        return tuple(torch.empty(_TOGETHER, width) for width in widths)

    def _shape(self, decoder: Decoder, weights: RawWeights) -> tuple[Any, ...]:
        config = decoder.config
        for name, size in (
            ("hidden_size", config.hidden_size),
            ("intermediate_size", config.intermediate_size),
            ("head_dim", config.head_dim),
        ):
            _check(size % LANES == 0, f"{name} is {size}, no multiple of {LANES}")
        _check(decoder.local_rotary is None, "some layers rotate otherwise")
        _check(config.traits.embedding_scale is None, "embeddings are scaled")
        return (
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            0,
            0,
            self._head(decoder, weights),
            np.zeros(1, dtype=AHEAD)[0],
            config.rms_norm_eps,
            decoder.attention_specs[0].scale,
        )

    def _layer(self, layer: DecoderLayer, weights: RawWeights) -> tuple[Any, ...]:
        mlp = layer.mlp
        _check(type(layer) is DecoderLayer, "its layers are fused")
        _check(layer.attended_norm is None and layer.mlp_output_norm is None, "it norms what branches add")
        _check(layer.spec.softcap is None, "it caps attention scores")
        _check(isinstance(mlp, DenseMLP) and mlp.activation == "silu", "its MLP is no gated SiLU")
        assert isinstance(mlp, DenseMLP)
        _check(layer.qk_norm is None or isinstance(layer.qk_norm, RMSNorm), "it norms heads together")
        window = layer.spec.sliding_window
        return (
            self._norm_weight(layer.attention_norm),
            self._projection(layer.qkv, weights),
            0 if layer.qk_norm is None else self._norm_weight(layer.qk_norm),
            self._projection(layer.output, weights),
            self._norm_weight(layer.mlp_norm),
            self._projection(mlp.gate_up, weights),
            self._projection(mlp.down, weights),
            0,
            0,
            np.iinfo(np.int64).max // 2 if window is None else window,
        )

    def _projection(self, linear: object, weights: RawWeights) -> tuple[int, ...]:
        retained = weights.of(linear)
        _check(retained is not None, "its weights are quantized to groups, shared or no float32")
        assert retained is not None
        return self._memory.projection(retained)

    def _head(self, decoder: Decoder, weights: RawWeights) -> tuple[int, ...]:
        """Return the record of the vocabulary projection; zeros if it cannot run compiled."""
        try:
            return self._projection(decoder.head, weights)
        except NotCompilable:
            return (0,) * len(PROJECTION.fields or ())

    def _norm_weight(self, norm: object) -> int:
        _check(isinstance(norm, RMSNorm), "a layer has no norm before it")
        assert isinstance(norm, RMSNorm)
        return self._memory.address(norm.weight)


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise NotCompilable(otherwise)
