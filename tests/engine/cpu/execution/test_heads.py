"""Compiled heads state what their int8 weights state, wherever they are computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.cpu.execution.heads import CompiledHeads
from engine.cpu.execution.model import CompiledModel
from engine.models.decoder import Decoder
from engine.models.prediction_heads import PredictionHeads
from engine.quantization.weights import quantize_channels
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.made_up_heads import made_up_heads
from tests.engine.models.paged import PagedRunner, Row

SIZE = 96


def opened(tmp_path: Path, num_threads: int, num_heads: int) -> tuple[CompiledModel, Decoder, CompiledHeads]:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=SIZE, vocab_size=100), tmp_path)
    runner = PagedRunner(folder, compiled_threads=num_threads)
    runner.prefill(Row([1, 2, 3]), [3])
    model = runner.model
    assert isinstance(model, CompiledModel)
    heads = PredictionHeads(made_up_heads(SIZE, num_heads=num_heads, width=80), model.decoder)
    return model, model.decoder, CompiledHeads(model, heads)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("num_tokens", [1, 2, 7, 21])
def test_logits_are_those_of_the_same_weights_in_torch(
    num_threads: int, num_heads: int, num_tokens: int, tmp_path: Path
) -> None:
    model, decoder, heads = opened(tmp_path, num_threads, num_heads)
    weights = made_up_heads(SIZE, num_heads=num_heads, width=80)
    rounded = replace(
        weights,
        gate_up=quantize_channels(weights.gate_up).dequantize(),
        down=quantize_channels(weights.down).dequantize(),
    )
    hidden, token_ids = torch.randn(num_tokens, SIZE), torch.randint(0, 100, (num_tokens,))
    expected = PredictionHeads(rounded, decoder).predict_logits(hidden, token_ids)
    assert (heads.predict_logits(hidden, token_ids) - expected).abs().max() < 1e-4
    model.close()


def test_what_does_not_fit_or_is_not_compiled_is_computed_as_it_is_written_down(tmp_path: Path) -> None:
    model, decoder, heads = opened(tmp_path, 1, 3)
    plain = PredictionHeads(made_up_heads(SIZE, width=80), decoder)
    for num_tokens in (22, 64, 2):
        if num_tokens == 2:
            model.max_tokens, model.prompt_way = 0, "torch"
        hidden, token_ids = torch.randn(num_tokens, SIZE), torch.randint(0, 100, (num_tokens,))
        assert torch.equal(heads.predict_logits(hidden, token_ids), plain.predict_logits(hidden, token_ids))


def test_steps_between_head_runs_are_what_they_are_without(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=SIZE, vocab_size=100), tmp_path)
    expected = PagedRunner(folder, compiled_threads=2).prefill(Row([5, 6, 7, 8]), [4])
    runner = PagedRunner(folder, compiled_threads=2)
    assert isinstance(runner.model, CompiledModel)
    heads = CompiledHeads(runner.model, PredictionHeads(made_up_heads(SIZE), runner.model.decoder))
    runner.prefill(Row([1, 2, 3]), [3])
    heads.predict_logits(torch.randn(3, SIZE), torch.tensor([1, 2, 3]))
    assert torch.equal(runner.prefill(Row([5, 6, 7, 8]), [4]), expected)


def test_threads_that_joined_since_the_last_step_have_room_of_their_own(tmp_path: Path) -> None:
    model, _, heads = opened(tmp_path, 1, 3)
    hidden, token_ids = torch.randn(21, SIZE), torch.randint(0, 100, (21,))
    expected = heads.predict_logits(hidden, token_ids)
    model.resize(4)
    for _ in range(50):
        assert torch.equal(heads.predict_logits(hidden, token_ids), expected)
    model.close()


def test_heads_run_before_any_step(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=SIZE, vocab_size=100), tmp_path)
    runner = PagedRunner(folder, compiled_threads=2)
    assert isinstance(runner.model, CompiledModel)
    heads = CompiledHeads(runner.model, PredictionHeads(made_up_heads(SIZE), runner.model.decoder))
    hidden, token_ids = torch.randn(2, SIZE), torch.tensor([4, 5])
    first = heads.predict_logits(hidden, token_ids)
    runner.prefill(Row([1, 2, 3]), [3])
    assert torch.equal(heads.predict_logits(hidden, token_ids), first)
