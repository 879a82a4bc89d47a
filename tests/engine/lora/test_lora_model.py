"""Sequences with adapters equal models with merged weights, alone and in one batch with others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.attention.base import ForwardContext, KVCache
from engine.lora.lora_linear import StepAdapters, attach_adapters
from engine.lora.lora_model import LoraModel, TokenSteps
from engine.lora.stacked_weights import StackedWeights
from engine.lora.token_adapters import TokenAdapterModel
from engine.models.decoder import Decoder
from engine.runner.cuda_graphs import GraphedModel
from engine.runner.graph_buckets import BucketLimits
from tests.engine.lora.adapters import ATTENTION, MAX_RANK, MODULES, attach, load, merged, with_adapters, write_adapter
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import PROMPT, reference_logits
from tests.engine.models.paged import PagedRunner, Row
from tests.engine.runner.test_cuda_graphs import EagerGraphs

CPU = torch.device("cpu")
TOLERANCE = 1e-4
COMPILABLE = {"hidden_size": 96, "vocab_size": 100}
RANKS = (4, 6, 1)


@pytest.mark.parametrize(
    "variant", ["llama3", "llama_biased", "qwen2", "qwen3", "gemma2", "gemma3", "olmo2", "phi3_partial"]
)
def test_logits_equal_merged_weights(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant)
    deltas = write_adapter(tmp_path / "adapter", reference, rank=4)
    runner = with_adapters(PagedRunner(save_checkpoint(reference, tmp_path / "base")), [tmp_path / "adapter"])

    logits = runner.prefill(Row(list(PROMPT), adapter=0), [13, 7, 1, 22])

    expected = reference_logits(merged(reference, deltas), PROMPT)
    assert (logits - expected).abs().max() < TOLERANCE * max(1.0, float(expected.abs().max()))
    assert (logits - reference_logits(reference, PROMPT)).abs().max() > 0.1


@pytest.mark.parametrize("variant", ["mixtral", "qwen3_moe"])
def test_attention_of_a_model_with_experts_can_have_adapters(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant)
    deltas = write_adapter(tmp_path / "adapter", reference, modules=ATTENTION, strength=0.1)
    runner = with_adapters(PagedRunner(save_checkpoint(reference, tmp_path / "base")), [tmp_path / "adapter"])

    logits = runner.prefill(Row(list(PROMPT), adapter=0), [13, 7])

    assert (logits - reference_logits(merged(reference, deltas), PROMPT)).abs().max() < TOLERANCE


def test_rank_stabilized_scale_and_bfloat16_files(tmp_path: Path) -> None:
    reference = make_reference("llama3")
    deltas = write_adapter(tmp_path / "adapter", reference, use_rslora=True, dtype=torch.bfloat16, strength=0.2)
    runner = with_adapters(PagedRunner(save_checkpoint(reference, tmp_path / "base")), [tmp_path / "adapter"])

    logits = runner.prefill(Row(list(PROMPT), adapter=0), [40])

    assert (logits - reference_logits(merged(reference, deltas), PROMPT)).abs().max() < TOLERANCE


def _open(variant: str, tmp_path: Path, compiled_threads: int) -> tuple[list[PreTrainedModel], PagedRunner]:
    """Merged models of three adapters with other modules and ranks, then the base; and a runner with the adapters."""
    reference = make_reference(variant, **COMPILABLE)
    models: list[PreTrainedModel] = []
    for index, (rank, modules) in enumerate(zip(RANKS, (MODULES, ("self_attn.q_proj",), ATTENTION), strict=True)):
        deltas = write_adapter(tmp_path / str(index), reference, rank=rank, seed=index, modules=modules)
        models.append(merged(reference, deltas))
    runner = PagedRunner(save_checkpoint(reference, tmp_path / "base"), compiled_threads=compiled_threads)
    return [*models, reference], with_adapters(runner, [tmp_path / str(index) for index in range(3)])


@pytest.mark.parametrize(("variant", "compiled_threads"), [("llama3", 0), ("gemma3", 0), ("llama3", 1), ("qwen3", 2)])
def test_several_adapters_and_the_base_in_one_batch_equal_each_alone(
    variant: str, compiled_threads: int, tmp_path: Path
) -> None:
    models, runner = _open(variant, tmp_path, compiled_threads)
    owners: list[int | None] = [0, None, 1, 0, 2, None, 1]
    prompts = [[(7 * n * n + k * n + 3) % 97 for n in range(9 + 4 * k)] for k in range(len(owners))]
    rows = [Row(prompt, adapter=owner) for prompt, owner in zip(prompts, owners, strict=True)]

    first = runner.step([(row, 5) for row in rows])
    rest = runner.step([(row, len(row.tokens) - 5) for row in rows], num_sampled=[2] * len(rows))

    for prompt, owner, early, late in zip(prompts, owners, first, rest, strict=True):
        expected = reference_logits(models[3 if owner is None else owner], prompt)
        limit = TOLERANCE * max(1.0, float(expected.abs().max()))
        assert (early - expected[:5]).abs().max() < limit
        assert (late - expected[-2:]).abs().max() < limit


@pytest.mark.parametrize("compiled_threads", [0, 1, 2])
def test_rows_of_the_base_keep_their_bits_beside_adapters(compiled_threads: int, tmp_path: Path) -> None:
    _, runner = _open("llama3", tmp_path, compiled_threads)

    def base_logits(others: list[int | None]) -> torch.Tensor:
        row = Row(list(PROMPT[:6]))
        beside = [Row(list(PROMPT[:9]), adapter=owner) for owner in others]
        found = [runner.step([(row, 5), *((one, 5) for one in beside)])[0]]
        found.append(runner.step([*((one, 1) for one in beside), (row, 1)])[-1])
        return torch.cat(found)

    assert torch.equal(base_logits([None, None]), base_logits([0, None]))
    if compiled_threads:
        assert torch.equal(base_logits([]), base_logits([0, 1, 2]))


def test_a_place_is_loaded_again_without_a_trace_of_its_last_adapter(tmp_path: Path) -> None:
    reference = make_reference("llama3")
    write_adapter(tmp_path / "first", reference, rank=6)
    deltas = write_adapter(tmp_path / "second", reference, rank=2, seed=5, modules=("self_attn.v_proj",))
    runner = PagedRunner(save_checkpoint(reference, tmp_path / "base"))
    weights = attach(runner, 1)
    load(weights, 0, tmp_path / "first")
    runner.prefill(Row(list(PROMPT), adapter=0), [40])

    load(weights, 0, tmp_path / "second")

    logits = runner.prefill(Row(list(PROMPT), adapter=0), [40])
    assert (logits - reference_logits(merged(reference, deltas), PROMPT)).abs().max() < TOLERANCE


class CountingModel:
    """A model in front of a decoder, as captured steps are."""

    def __init__(self, decoder: Decoder) -> None:
        self.config, self.attention_specs = decoder.config, decoder.attention_specs
        self.num_calls = 0
        self._decoder = decoder

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Count the step and compute it."""
        self.num_calls += 1
        return self._decoder.forward(token_ids, context, caches)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The decoder's logits."""
        return self._decoder.logits(hidden)


def test_only_steps_without_adapters_are_captured(tmp_path: Path) -> None:
    reference = make_reference("llama3")
    deltas = write_adapter(tmp_path / "adapter", reference)
    runner = PagedRunner(save_checkpoint(reference, tmp_path / "base"))
    decoder = runner.model
    assert isinstance(decoder, Decoder)
    weights = StackedWeights(
        decoder.config, num_adapters=1, max_rank=MAX_RANK, dtype=torch.float32, device=torch.device("cpu")
    )
    step = StepAdapters()
    attach_adapters(decoder, weights, step)
    load(weights, 0, tmp_path / "adapter")
    captured = CountingModel(decoder)
    runner.model = LoraModel(captured, decoder, step, runs_base_apart=False)

    plain, adapted = Row(list(PROMPT)), Row(list(PROMPT), adapter=0)
    found = runner.step([(plain, 9), (adapted, 9)])
    assert captured.num_calls == 0
    more = runner.step([(plain, 4)])
    assert captured.num_calls == 1

    expected = reference_logits(reference, PROMPT)
    assert (torch.cat([found[0], more[0]]) - expected[:13]).abs().max() < TOLERANCE
    assert (found[1] - reference_logits(merged(reference, deltas), PROMPT)[:9]).abs().max() < TOLERANCE * 10


def test_fused_layers_of_a_gpu_add_the_products_too(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("on CPU through the interpreter; tests/gpu has the cards")
    from engine.attention.triton_paged import TritonPagedAttention
    from engine.models.fused_ops import TritonLayerOps

    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12}
    reference = make_reference("llama2", num_hidden_layers=1, **heads)
    deltas = write_adapter(tmp_path / "adapter", reference, strength=0.1)
    folder = save_checkpoint(reference, tmp_path / "base")
    backend = TritonPagedAttention(device=torch.device("cpu"))
    runner = with_adapters(PagedRunner(folder, backend=backend, ops=TritonLayerOps()), [tmp_path / "adapter"])

    logits = runner.step([(Row(list(PROMPT[:6]), adapter=0), 6), (Row(list(PROMPT[:4])), 4)])

    assert torch.allclose(logits[0], reference_logits(merged(reference, deltas), PROMPT[:6]), atol=2e-4)
    assert torch.allclose(logits[1], reference_logits(reference, PROMPT[:4]), atol=2e-4)


def test_tokens_name_their_adapters_in_steps_that_replay(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("on CPU through the interpreter; tests/gpu has the cards")
    from engine.attention.triton_paged import TritonPagedAttention
    from engine.kernels.token_adapters import add_token_products
    from engine.models.fused_ops import TritonLayerOps

    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12}
    reference = make_reference("llama2", num_hidden_layers=1, **heads)
    models: list[PreTrainedModel] = []
    for index, (rank, modules) in enumerate(((4, MODULES), (2, ("self_attn.q_proj", "mlp.up_proj")))):
        deltas = write_adapter(tmp_path / str(index), reference, rank=rank, seed=index, modules=modules, strength=0.1)
        models.append(merged(reference, deltas))
    folder = save_checkpoint(reference, tmp_path / "base")
    runner = PagedRunner(folder, backend=TritonPagedAttention(device=CPU), ops=TritonLayerOps())
    api = EagerGraphs()

    def captured(decoder: Decoder, step: StepAdapters) -> TokenSteps:
        adapted = TokenAdapterModel(decoder, step, add_token_products, CPU)
        limits = BucketLimits(max_num_seqs=4, max_tokens=8, max_query_len=2, max_context_len=64)
        graphed = GraphedModel(adapted, runner.caches, api, limits, block_size=8, max_step_tokens=64, device=CPU)
        return TokenSteps(adapted, graphed)

    with_adapters(runner, [tmp_path / "0", tmp_path / "1"], captured)
    owners: list[int | None] = [1, None, 0]
    rows = [Row(list(PROMPT[:21]), adapter=owner) for owner in owners]

    runner.step([(row, 17) for row in rows])
    found = [runner.step([(row, count) for row in rows]) for count in (1, 2)]
    alone = runner.step([(rows[2], 1)])

    for row, owner in enumerate(owners):
        expected = reference_logits(reference if owner is None else models[owner], PROMPT[:21])
        assert torch.allclose(torch.cat([step[row] for step in found]), expected[17:20], atol=3e-4)
    assert torch.allclose(alone[0], reference_logits(models[0], PROMPT[:21])[20:], atol=3e-4)
    assert [graph.num_replays for graph in api.graphs] == [1, 1, 1]
