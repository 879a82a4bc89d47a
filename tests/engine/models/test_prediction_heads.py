"""Prediction heads are read strictly, and state what the trained module states."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.attention.torch_attention import TorchAttention
from engine.models.config.checkpoint import CheckpointError
from engine.models.loading.loader import load_model
from engine.models.prediction_heads import FILE_NAME, HeadWeights, PredictionHeads, read_heads
from engine.training.heads import Heads
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.made_up_heads import made_up_heads
from tests.engine.models.paged import CPU

SIZE = 96


def save(weights: dict[str, torch.Tensor], folder: Path) -> None:
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / FILE_NAME)


def read(folder: Path, hidden_size: int = SIZE) -> HeadWeights | None:
    return read_heads(folder, hidden_size, dtype=torch.float32, device=CPU)


def test_a_folder_without_heads_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_what_was_trained_is_what_is_computed(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=SIZE, vocab_size=100), tmp_path)
    decoder = load_model(folder, dtype=torch.float32, device=CPU, backend=TorchAttention(CPU))
    torch.manual_seed(4)
    trained = Heads(decoder.embedding.table.clone(), num_heads=3, width=64)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    trained.export(folder)
    trained.read(folder)  # as rounded as they are in the file
    weights = read(folder)
    assert weights is not None
    hidden, token_ids = torch.randn(7, SIZE), torch.randint(0, 100, (7,))

    found = PredictionHeads(weights, decoder).predict_logits(hidden, token_ids)

    with torch.no_grad():
        expected = trained(hidden, token_ids)
    assert found.shape == (7, 3, 100)
    assert (found - expected).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"down": None}, "expected the tensors"),
        ({"surplus": torch.ones(3)}, "expected the tensors"),
        ({"skip": torch.ones(3, SIZE - 1)}, "skip: expected"),
        ({"gate_up": torch.ones(64, SIZE)}, "gate_up: expected"),
        ({"norms": torch.ones(9, SIZE)}, "expected 1 to 4 heads, got 9"),
    ],
)
def test_heads_that_do_not_fit_are_refused_with_what_is_wrong(
    change: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    weights = {**asdict(made_up_heads(SIZE)), **change}
    save({name: value for name, value in weights.items() if value is not None}, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path)


def test_a_file_that_is_cut_off_is_refused_with_the_way_out(tmp_path: Path) -> None:
    save(asdict(made_up_heads(SIZE)), tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="remove the file"):
        read(tmp_path)
