"""Decode and verification steps as captured graphs: hundreds of launches become one.

A graph replays the same kernels on the same memory. So a step's inputs are copied to buffers that never move and are
padded to their bucket. Sequences beyond the step have no tokens, and tokens beyond it are stored nowhere. Graphs are
captured when a bucket is first met; steps without a bucket run as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from engine.attention.base import DeviceLengths, ForwardContext, KVCache
from engine.attention.step_states import StepStates
from engine.config import CoreConfig
from engine.models.decoder import Model
from engine.runner.graph_buckets import Bucket, BucketLimits, find_bucket

logger = logging.getLogger(__name__)

_MAX_NUM_SEQS = 256
_MAX_TOKENS = 1024
_MAX_GRAPHS = 96
_NO_SLOT = -1


class Graph(Protocol):
    """Captured work."""

    def replay(self) -> None:
        """Launch it again, on what its inputs hold now."""
        ...


class GraphApi(Protocol):
    """Interface to the capture of CUDA work."""

    def capture(self, run: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """Return a graph of the work that `run` launches, and the tensor that each replay fills.

        The capture itself computes nothing.

        Raises:
            RuntimeError: Some of the work cannot be captured.
        """
        ...


class CudaGraphApi:
    """torch's CUDA graphs; those of one instance share memory, so they are replayed one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, run: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """Capture on a stream of its own. Raises RuntimeError."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            out = run()
        return graph, out


class CapturableModel(Model, Protocol):
    """A model whose buffers can be made to stay where they are."""

    def reserve(self, num_tokens: int, num_positions: int, num_state_slots: int) -> None:
        """Grow buffers, tables and recurrent states to this size now; they do not move until something larger comes."""
        ...


class _Captured(NamedTuple):
    """A graph with what its replays read and fill."""

    graph: Graph
    hidden: torch.Tensor
    context: ForwardContext
    """Inputs of the graph, some of which only this holds."""


class GraphedModel:
    """A model over one KV pool that runs by graphs where it can; same interface, same numbers."""

    def __init__(
        self,
        model: CapturableModel,
        caches: list[KVCache],
        api: GraphApi,
        limits: BucketLimits,
        *,
        block_size: int,
        max_step_tokens: int,
        device: torch.device,
        num_state_slots: int = 0,
    ) -> None:
        """Prepare for steps of at most `max_step_tokens` tokens and `num_state_slots` states, captured or not.

        A larger step would move buffers whose addresses are in the graphs.
        """
        self._model = model
        self._caches = caches
        self._api = api
        self._limits = limits
        self._block_size = block_size
        self.config = model.config
        self.attention_specs = model.attention_specs
        self._graphs: dict[Bucket, _Captured] = {}
        self._can_capture = model.config.traits.experts is None
        max_blocks = -(-limits.max_context_len // block_size)
        self._tokens = torch.zeros(limits.max_tokens, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._tokens)
        self._slots = torch.full_like(self._tokens, _NO_SLOT)
        self._lengths = torch.zeros(2 * limits.max_num_seqs + 1, dtype=torch.int32, device=device)
        self._tables = torch.zeros(limits.max_num_seqs * max_blocks, dtype=torch.int32, device=device)
        # Padding reads and writes the last state.
        self._spare_state = num_state_slots
        self._reads = torch.full_like(self._tokens, self._spare_state)
        self._writes = torch.full_like(self._tokens, self._spare_state)
        num_positions, num_states = limits.max_context_len, num_state_slots + 1 if num_state_slots else 0
        model.reserve(max(max_step_tokens, limits.max_tokens), num_positions, num_states)

    @property
    def num_graphs(self) -> int:
        """Number of buckets captured so far."""
        return len(self._graphs)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Return the final hidden states [T, hidden], valid until the next step; write keys and values."""
        may_capture = context.states is None or context.states.are_single_tokens
        can_capture = self._can_capture and caches is self._caches and may_capture
        bucket = find_bucket(context, self._limits) if can_capture else None
        if bucket is None or (bucket not in self._graphs and len(self._graphs) >= _MAX_GRAPHS):
            return self._model.forward(token_ids, context, caches)
        self._fill(token_ids, context, bucket)
        captured = self._graphs.get(bucket) or self._capture(bucket)
        if captured is None:
            return self._model.forward(token_ids, context, caches)
        captured.graph.replay()
        return captured.hidden[: token_ids.shape[0]]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        return self._model.logits(hidden)

    def _fill(self, token_ids: torch.Tensor, context: ForwardContext, bucket: Bucket) -> None:
        """Put a step's inputs where the graph reads them."""
        num_tokens, num_seqs = token_ids.shape[0], len(context.context_lens)
        self._tokens[:num_tokens].copy_(token_ids)
        self._positions[:num_tokens].copy_(context.positions)
        self._slots[:num_tokens].copy_(context.slot_mapping)
        if num_tokens < bucket.num_tokens:
            self._slots[num_tokens : bucket.num_tokens].fill_(_NO_SLOT)
        if context.states is not None:
            self._reads[:num_tokens].copy_(context.states.reads)
            self._writes[:num_tokens].copy_(context.states.written)
            self._reads[num_tokens : bucket.num_tokens].fill_(self._spare_state)
            self._writes[num_tokens : bucket.num_tokens].fill_(self._spare_state)
        missing = bucket.num_seqs - num_seqs
        lengths = [*context.query_starts, *[num_tokens] * missing, *context.context_lens, *[0] * missing]
        is_pinned = self._lengths.is_cuda
        staged = torch.tensor(lengths, dtype=torch.int32, pin_memory=is_pinned)
        self._lengths[: len(lengths)].copy_(staged, non_blocking=True)
        tables = self._bucket_tables(bucket)
        width = min(context.block_tables.shape[1], tables.shape[1])
        tables[:num_seqs, :width].copy_(context.block_tables[:, :width])

    def _bucket_tables(self, bucket: Bucket) -> torch.Tensor:
        num_columns = -(-bucket.context_len // self._block_size)
        return self._tables[: bucket.num_seqs * num_columns].view(bucket.num_seqs, num_columns)

    def _capture(self, bucket: Bucket) -> _Captured | None:
        """Return the bucket's graph; None, from then on for good, when this model cannot be captured."""
        token_ids, context = self._tokens[: bucket.num_tokens], self._bucket_context(bucket)

        def run() -> torch.Tensor:
            return self._model.forward(token_ids, context, self._caches)

        try:
            # Once as it is: kernels are compiled and buffers grow, the head's too, which graphs share.
            self._model.logits(run()[:1])
            captured = self._graphs[bucket] = _Captured(*self._api.capture(run), context)
        except RuntimeError:
            logger.exception("steps cannot be captured; they run one launch at a time")
            self._can_capture = False
            return None
        logger.info("captured %s", bucket)
        return captured

    def _bucket_context(self, bucket: Bucket) -> ForwardContext:
        """Return the context for capturing a graph: its lists are bounds, its tensors are the buffers."""
        num_seqs, num_tokens = bucket.num_seqs, bucket.num_tokens
        states, recurrent = None, self.config.traits.recurrent
        if recurrent is not None:
            slots = self._reads[:num_tokens], self._writes[:num_tokens]
            states = StepStates.of_single_tokens(*slots, recurrent.window, self._spare_state + 1)
        starts = [min(row * bucket.query_len, num_tokens) for row in range(num_seqs)] + [num_tokens]
        return ForwardContext(
            positions=self._positions[:num_tokens],
            slot_mapping=self._slots[:num_tokens],
            query_starts=starts,
            context_lens=[bucket.context_len] * num_seqs,
            block_tables=self._bucket_tables(bucket),
            block_size=self._block_size,
            on_device=DeviceLengths(
                query_starts=self._lengths[: num_seqs + 1],
                context_lens=self._lengths[num_seqs + 1 : 2 * num_seqs + 1],
            ),
            states=states,
        )


def graph_model(
    config: CoreConfig,
    model: CapturableModel,
    caches: list[KVCache],
    api: GraphApi,
    *,
    max_model_len: int,
    device: torch.device,
    num_state_slots: int = 0,
) -> GraphedModel:
    """Return the model over this pool, captured for the decode and verification steps of this configuration."""
    max_num_seqs = min(config.batch.max_num_seqs, config.batch.max_num_batched_tokens, _MAX_NUM_SEQS)
    max_query_len = 1 if config.drafting.speculation == "off" else 1 + config.drafting.num_speculative_tokens
    limits = BucketLimits(
        max_num_seqs=max_num_seqs,
        max_tokens=min(max_num_seqs * max_query_len, _MAX_TOKENS),
        max_query_len=max_query_len,
        max_context_len=max_model_len,
    )
    return GraphedModel(
        model,
        caches,
        api,
        limits,
        block_size=config.kv.block_size,
        max_step_tokens=config.batch.max_num_batched_tokens,
        device=device,
        num_state_slots=num_state_slots,
    )
