from pathlib import Path

import pytest
import torch

from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.forward import hidden_states
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


def test_the_training_forward_agrees_with_transformers() -> None:
    torch.manual_seed(0)
    model = build(SHAPES["tiny"], 1, 2)
    ids = torch.randint(0, tokenizer.VOCAB_SIZE, (2, 300))
    with torch.no_grad():
        ours = hidden_states(model, ids).float()
        theirs = model.model(input_ids=ids).last_hidden_state
    assert (ours - theirs).norm() / theirs.norm() < 0.02


def test_the_gradients_agree_with_transformers() -> None:
    torch.manual_seed(0)
    model = build(SHAPES["tiny"], 1, 2)
    ids = torch.randint(0, tokenizer.VOCAB_SIZE, (2, 40))
    gradients = []
    for hidden in (hidden_states(model, ids).float(), model.model(input_ids=ids).last_hidden_state):
        model.zero_grad()
        torch.autograd.backward((hidden * torch.linspace(-1, 1, hidden.shape[-1])).sum())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 0.03


def test_a_plan_can_request_lower_rates() -> None:
    plan = TrainingPlan(model="tiny", steps=100, warmup_steps=10, rate_ratio=0.3)
    assert plan.lr_factor(50, 0.0) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("step", "elapsed_s", "factor"),
    [(0, 0.0, 0.1), (9, 0.0, 1.0), (50, 0.0, 1.0), (85, 0.0, 0.5), (10, 3060.0, 0.5), (100, 0.0, 0.0)],
)
def test_the_learning_rate_warms_up_holds_and_declines(step: int, elapsed_s: float, factor: float) -> None:
    plan = TrainingPlan(model="tiny", steps=100, hours=1.0, warmup_steps=10, decay_ratio=0.3)
    assert plan.lr_factor(step, elapsed_s) == pytest.approx(factor)


def test_a_plan_is_done_after_its_steps_or_its_hours() -> None:
    plan = TrainingPlan(model="tiny", steps=10, hours=0.5)
    assert not plan.is_done(9, 1799.0)
    assert plan.is_done(10, 0.0)
    assert plan.is_done(0, 1800.0)
