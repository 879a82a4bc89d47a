"""Captured steps without a card: a graph that runs its work again where a real one would replay it."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.config import CoreConfig
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.runner.cuda_graphs import CapturableModel, Graph, GraphedModel, graph_model
from engine.runner.graph_buckets import BucketLimits
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

CPU = torch.device("cpu")
LIMITS = BucketLimits(max_num_seqs=4, max_tokens=16, max_query_len=5, max_context_len=64)
BLOCK_SIZE = 8


@dataclass
class EagerGraph:
    """Work that is done again."""

    run: Callable[[], torch.Tensor]
    out: torch.Tensor
    num_replays: int = 0

    def replay(self) -> None:
        """Do it, and leave the result where the first one is."""
        self.num_replays += 1
        self.out.copy_(self.run())


class EagerGraphs:
    """Captures by doing the work once; hands out nothing on request fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.graphs: list[EagerGraph] = []
        self._fails = fails

    def capture(self, run: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """The graph and its output."""
        if self._fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        graph = EagerGraph(run, torch.full_like(run(), torch.nan))
        self.graphs.append(graph)
        return graph, graph.out


class RecordingModel:
    """Hidden states state which token stands where; every context is stored."""

    def __init__(self, folder: Path) -> None:
        self.config = read_model_config(folder)
        self.attention_specs: list[AttentionSpec] = []
        self.contexts: list[ForwardContext] = []
        self.reserved = (0, 0, 0)

    def reserve(self, num_tokens: int, num_positions: int, num_state_slots: int) -> None:
        """Remember it."""
        self.reserved = (num_tokens, num_positions, num_state_slots)

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """[T, 2]: token and position."""
        self.contexts.append(context)
        return torch.stack((token_ids, context.positions), 1).float()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same."""
        return hidden


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(make_reference("qwen3", num_hidden_layers=1), tmp_path_factory.mktemp("dense"))


class Steps:
    """A graphed recording model and the steps it is given."""

    def __init__(self, folder: Path, *, fails: bool = False) -> None:
        self.api = EagerGraphs(fails=fails)
        self.model = RecordingModel(folder)
        self.caches: list[KVCache] = []
        self.graphed = GraphedModel(
            self.model, self.caches, self.api, LIMITS, block_size=BLOCK_SIZE, max_step_tokens=40, device=CPU
        )

    def run(self, *rows: tuple[int, int], caches: list[KVCache] | None = None) -> torch.Tensor:
        """Sequences of (query length, context length), each in one block of its own from block 1 on."""
        positions = torch.cat([torch.arange(end - length, end) for length, end in rows])
        starts = [sum(length for length, _ in rows[:index]) for index in range(len(rows) + 1)]
        context = ForwardContext(
            positions,
            torch.arange(len(positions)),
            starts,
            [end for _, end in rows],
            torch.arange(1, len(rows) + 1).unsqueeze(1),
            BLOCK_SIZE,
        )
        return self.graphed.forward(100 + positions, context, self.caches if caches is None else caches)


def test_a_bucket_is_captured_once_and_replayed_with_what_each_step_brings(folder: Path) -> None:
    steps = Steps(folder)

    first, second = steps.run((1, 3), (1, 5), (1, 8)).clone(), steps.run((1, 4), (1, 6), (1, 7), (1, 2)).clone()

    assert first.tolist() == [[102, 2], [104, 4], [107, 7]]
    assert second.tolist() == [[103, 3], [105, 5], [106, 6], [101, 1]]
    (graph,) = steps.api.graphs
    assert graph.num_replays == 2
    assert steps.graphed.num_graphs == 1
    assert steps.model.reserved == (40, 64, 0)


def test_padding_has_no_tokens_and_no_slots(folder: Path) -> None:
    steps = Steps(folder)
    steps.run((3, 8), (1, 7), (1, 6), (1, 5))
    steps.run((3, 5), (1, 7), (1, 6))

    context = steps.model.contexts[-1]

    assert context.on_device is not None
    assert context.on_device.query_starts.tolist() == [0, 3, 4, 5, 5]
    assert context.on_device.context_lens.tolist() == [5, 7, 6, 0]
    assert context.slot_mapping.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]
    assert context.block_tables[:, 0].tolist()[:3] == [1, 2, 3]
    assert context.query_starts == [0, 3, 6, 8, 8], "bounds, not the step's own"
    assert context.context_lens == [64] * 4
    assert steps.graphed.num_graphs == 1


def test_steps_without_a_bucket_and_over_another_pool_run_as_they_are(folder: Path) -> None:
    steps = Steps(folder)

    steps.run((6, 8))
    steps.run(*[(1, 8)] * 5)
    steps.run((1, 8), caches=[])

    assert not steps.api.graphs
    assert all(context.on_device is None for context in steps.model.contexts)


def test_a_model_that_cannot_be_captured_is_not_called_twice(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(folder, fails=True)

    assert steps.run((1, 3)).tolist() == [[102, 2]]
    assert steps.run((1, 3), (1, 4)).tolist() == [[102, 2], [103, 3]]

    assert sum("cannot be captured" in record.message for record in caplog.records) == 1


class ForgetfulGraphs(EagerGraphs):
    """Keeps nothing of what was captured, as a card's graph keeps addresses alone."""

    def capture(self, run: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """A graph that replays nothing."""
        _, out = super().capture(run)
        self.graphs.clear()
        return EagerGraph(lambda: out, out), out


def test_what_a_graph_reads_lives_as_long_as_the_graph(folder: Path) -> None:
    steps = Steps(folder)
    steps.graphed._api = ForgetfulGraphs()
    steps.run((1, 3))
    read = weakref.ref(steps.model.contexts[-1].block_tables)

    steps.model.contexts.clear()
    gc.collect()

    assert read() is not None


def test_experts_are_never_captured(tmp_path: Path) -> None:
    steps = Steps(save_checkpoint(make_reference("mixtral", num_hidden_layers=1), tmp_path))

    steps.run((1, 3))

    assert not steps.api.graphs


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5"])
def test_captured_steps_of_a_real_model_equal_plain_ones(family: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    layers = ["linear_attention", "full_attention"] if family == "qwen3_5" else None
    shape = {"num_hidden_layers": 1} if layers is None else {"num_hidden_layers": 2, "layer_types": layers}
    folder = save_checkpoint(make_reference(family, **shape), tmp_path)
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("on CPU through the interpreter; tests/gpu has the cards")
    from engine.attention.triton_paged import TritonPagedAttention
    from engine.models.fused_ops import TritonLayerOps

    plain = PagedRunner(folder, shuffle_seed=1)
    graphed = PagedRunner(folder, shuffle_seed=1, backend=TritonPagedAttention(device=CPU), ops=TritonLayerOps())
    model: Any = graphed.model
    api = EagerGraphs()
    graphed.model = GraphedModel(
        model,
        graphed.caches,
        api,
        LIMITS,
        block_size=BLOCK_SIZE,
        max_step_tokens=16,
        device=CPU,
        num_state_slots=0 if graphed.states is None else graphed.states.num_slots,
    )
    prompt = [(5 * index * index + 3) % 97 for index in range(20)]
    rows = [[Row(list(prompt)), Row(list(prompt[::-1])), Row(list(prompt[7:]))] for _ in range(2)]

    for counts in ([7, 6, 1], [1, 1, 1], [3, 1, 2], [1, 1, 1]):
        one = plain.step(list(zip(rows[0], counts, strict=True)))
        other = graphed.step(list(zip(rows[1], counts, strict=True)))
        for expected, found in zip(one, other, strict=True):
            assert torch.allclose(found, expected, atol=2e-4)

    # Several tokens of a sequence with recurrent states have no graph.
    assert [graph.num_replays for graph in api.graphs] == ([2] if family == "qwen3_5" else [2, 1])


def test_reserved_buffers_stay_where_they_are(folder: Path) -> None:
    model: CapturableModel = load_model(folder, dtype=torch.float32, device=CPU, backend=TorchAttention(CPU))
    model.reserve(33, 5000, 0)
    decoder: Any = model
    buffers, table = decoder._buffers._buffers, decoder.rotary._table

    decoder._buffers.of(32)
    decoder.rotary.at(torch.tensor([4999]), 5000)

    assert decoder._buffers._buffers is buffers
    assert decoder.rotary._table is table


def test_an_engine_captures_what_it_decodes_and_verifies_in(folder: Path) -> None:
    config = CoreConfig.of(
        model_dir=folder, max_num_seqs=500, max_num_batched_tokens=600, speculation="ngram", num_speculative_tokens=3
    )

    graphed = graph_model(config, RecordingModel(folder), [], EagerGraphs(), max_model_len=100, device=CPU)

    assert graphed._limits == BucketLimits(max_num_seqs=256, max_tokens=1024, max_query_len=4, max_context_len=100)
