"""Training from the start, from a checkpoint and from finished weights."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.training.plan import TrainingPlan
from engine.training.trainer import Trainer

PLAN = TrainingPlan(
    model="tiny", seed=3, steps=8, step_tokens=512, phases=(("warmup", 4), ("shared", 99)), warmup_steps=2
)


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def test_training_continues_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    through = Trainer(PLAN)
    losses = [through.advance() for _ in range(6)]
    first = Trainer(PLAN)
    for _ in range(3):
        first.advance()
    first.save(tmp_path)
    second = Trainer(PLAN)
    second.restore(tmp_path)
    assert [second.advance() for _ in range(3)] == losses[3:]
    assert torch.equal(weights(second), weights(through))


def test_finished_weights_are_trained_further_from_where_they_are(tmp_path: Path) -> None:
    first = Trainer(PLAN)
    first.advance()
    first.save(tmp_path)
    further = Trainer(PLAN)
    further.start_from(tmp_path / "model")
    assert torch.equal(weights(further), weights(first).bfloat16().float())
    assert further.step == 0
    further.advance()
    assert not torch.equal(weights(further), weights(first).bfloat16().float())


def test_training_lowers_the_loss() -> None:
    trainer = Trainer(PLAN)
    first = trainer.advance()
    for _ in range(6):
        trainer.advance()
    assert trainer.advance() < first
