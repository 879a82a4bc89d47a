"""The loop around a training: it saves, shows its progress and ends in time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.bundled import model_dir
from engine.training import tokenizer
from engine.training.batches import Batches, Encoder, MicroBatch
from engine.training.plan import TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import Training, run_training, write_state


class FakeTraining(Training):
    """One weight without data, whose loss is always 2; a signal may arrive in some step."""

    state_name = "fake.pt"

    def __init__(self, steps: int, signal_at: int | None = None, process_group: ProcessGroup | None = None) -> None:
        plan, module = TrainingPlan(model="tiny", steps=steps), torch.nn.Linear(1, 1, bias=False)
        encoder = Encoder(tokenizer.read_tokenizer(model_dir("small")))
        batches = Batches(encoder, plan.mix_at, seed=1, step_tokens=0)
        optimizer = torch.optim.SGD(module.parameters())
        super().__init__(plan, process_group or ProcessGroup(), module, batches, [(optimizer, 0.1)])
        self.saved: list[int] = []
        self._signal_at = signal_at

    def add_gradients(self, batches: list[MicroBatch]) -> float:
        if self.step + 1 == self._signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return 2.0

    def export(self, folder: Path) -> None:
        assert torch.load(folder / self.state_name, weights_only=True)["step"] == self.step
        self.saved.append(self.step)


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_training_runs_to_its_end_and_reports_the_mean_loss_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = FakeTraining(steps=120)
    run_training(training, tmp_path, 1e9)
    assert (training.step, training.saved) == (120, [120])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" tokens ")[0] for line in lines] == ["step 50 loss 2.0000", "step 100 loss 2.0000"]


def test_a_signal_ends_a_training_one_step_later_with_a_checkpoint(tmp_path: Path) -> None:
    training = FakeTraining(steps=120, signal_at=7)
    run_training(training, tmp_path, 1e9)
    assert (training.step, training.saved) == (8, [8])


def test_only_the_first_process_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = FakeTraining(steps=60, process_group=ProcessGroup(rank=1))
    run_training(training, tmp_path, 0.0)
    assert (training.step, training.saved, capsys.readouterr().out) == (60, [], "")


def test_a_checkpoint_is_saved_as_often_as_requested(tmp_path: Path) -> None:
    training = FakeTraining(steps=3)
    run_training(training, tmp_path, -1.0)
    assert training.saved == [1, 2, 3, 3]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.pt"
    write_state({"step": 1}, path)
    with pytest.raises(Exception, match="pickle"):
        write_state({"step": lambda: 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
