"""Prediction heads are trained beside a finished model, which stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.prediction_heads import read_heads
from engine.training.plan import TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.train_heads import HeadTrainer
from engine.training.trainer import Trainer

PLAN = TrainingPlan(model="tiny", seed=3, steps=40, step_tokens=512, phases=(("ahead", 99),), warmup_steps=2)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    Trainer(PLAN).save(folder)
    return folder / "model"


def trainer(model_dir: Path) -> HeadTrainer:
    return HeadTrainer(PLAN, model_dir, num_heads=2, width=32, batch=64, process_group=ProcessGroup())


def test_training_lowers_the_loss_and_leaves_the_model_as_it_is(model_dir: Path) -> None:
    found = trainer(model_dir)
    before = [parameter.clone() for parameter in found.model.parameters()]
    first = found.advance()
    for _ in range(20):
        found.advance()
    assert found.advance() < first
    assert all(torch.equal(one, other) for one, other in zip(before, found.model.parameters(), strict=True))


def test_what_is_saved_is_read_by_the_engine_and_trained_further(model_dir: Path, tmp_path: Path) -> None:
    found = trainer(model_dir)
    found.advance()
    found.save(tmp_path)
    weights = read_heads(tmp_path, 32, dtype=torch.float32, device=torch.device("cpu"))
    assert weights is not None
    assert torch.equal(weights.down, found.heads.down.detach().bfloat16().float())
    again = trainer(model_dir)
    again.restore(tmp_path)
    assert again.step == 1
    assert torch.equal(again.heads.gate_up, found.heads.gate_up)
    again.advance()
    assert not torch.equal(again.heads.gate_up, found.heads.gate_up)


def test_finished_heads_are_trained_further_from_where_they_are(model_dir: Path, tmp_path: Path) -> None:
    first = trainer(model_dir)
    first.advance()
    first.save(tmp_path)
    further = trainer(model_dir)
    further.heads.read(tmp_path)
    assert torch.equal(further.heads.gate_up, first.heads.gate_up.bfloat16().float())
    assert further.step == 0
    further.advance()
    assert not torch.equal(further.heads.gate_up, first.heads.gate_up.bfloat16().float())
