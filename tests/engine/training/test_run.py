"""The loop around a training: it saves, shows its progress and ends in time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.training.plan import TrainingPlan
from engine.training.run import run_training, write_state


class FakeTraining:
    """Takes no time; is called to stop at some step."""

    def __init__(self, steps: int, stops_at: int | None = None) -> None:
        self.plan = TrainingPlan(model="tiny", steps=steps)
        self.step = 0
        self.elapsed_s = 0.0
        self.is_stopping = False
        self.saved: list[int] = []
        self._stops_at = stops_at

    def advance(self, *, wants_stop: bool = False) -> float:
        self.step += 1
        self.is_stopping = wants_stop
        if self.step == self._stops_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return 2.0

    def save(self, folder: Path) -> None:
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
    run_training(training, tmp_path, 1e9, lambda loss: f"step {training.step} loss {loss}")
    assert (training.step, training.saved) == (120, [120])
    assert capsys.readouterr().out.splitlines() == ["step 50 loss 2.0", "step 100 loss 2.0"]


def test_a_signal_ends_a_training_one_step_later_with_a_checkpoint(tmp_path: Path) -> None:
    training = FakeTraining(steps=120, stops_at=7)
    run_training(training, tmp_path, 1e9, str)
    assert (training.step, training.saved) == (8, [8])


def test_only_the_first_process_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = FakeTraining(steps=60)
    run_training(training, tmp_path, 0.0, str, is_first=False)
    assert (training.step, training.saved, capsys.readouterr().out) == (60, [], "")


def test_a_checkpoint_is_saved_as_often_as_called(tmp_path: Path) -> None:
    training = FakeTraining(steps=3)
    run_training(training, tmp_path, -1.0, str)
    assert training.saved == [1, 2, 3, 3]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.pt"
    write_state({"step": 1}, path)
    with pytest.raises(Exception, match="pickle"):
        write_state({"step": lambda: 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
