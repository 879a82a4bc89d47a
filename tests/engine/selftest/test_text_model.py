"""A model run over whole texts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from engine.attention.torch_attention import TorchAttention
from engine.models.loading.loader import load_model
from engine.selftest.text_model import ScoredText, TextModel
from tests.engine.models.checkpoints import make_reference, save_checkpoint

CPU = torch.device("cpu")


def test_perplexity_is_what_transformers_finds(tmp_path: Path) -> None:
    reference = make_reference("qwen3")
    folder = save_checkpoint(reference, tmp_path)
    backend = TorchAttention(CPU)
    model = load_model(folder, dtype=torch.float32, device=CPU, backend=backend)
    tokens = [token % 97 for token in range(3, 900, 7)]
    with torch.inference_mode():
        logits = reference(torch.tensor([tokens])).logits[0, :-1]
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]))

    text = ScoredText(tokens, [True] * (len(tokens) - 1) + [False])
    found = TextModel(model, backend, torch.float32, CPU).perplexity([text])

    assert math.log(found) == pytest.approx(float(expected), rel=1e-4)


def test_greedy_answers_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("llama3"), tmp_path)
    backend = TorchAttention(CPU)
    model = TextModel(load_model(folder, dtype=torch.float32, device=CPU, backend=backend), backend, torch.float32, CPU)
    prompts = [[index, *range(3 * index + 1)] for index in range(6)]

    together = model.answers(prompts, frozenset({5}), 12)

    assert together == [model.answers([prompt], frozenset({5}), 12)[0] for prompt in prompts]
    assert not any(5 in answer for answer in together)


def test_texts_without_a_target_have_no_perplexity(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3"), tmp_path)
    backend = TorchAttention(CPU)
    model = TextModel(load_model(folder, dtype=torch.float32, device=CPU, backend=backend), backend, torch.float32, CPU)
    with pytest.raises(ValueError, match="no token to predict"):
        model.perplexity([ScoredText([1, 2], [False, False])])
