"""Training loop with checkpoints; it ends when the plan is done or on SIGTERM."""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from engine.training.plan import TrainingPlan


class Training(Protocol):
    """Training that the loop advances."""

    plan: TrainingPlan
    step: int
    elapsed_s: float
    is_stopping: bool

    def advance(self, *, wants_stop: bool = False) -> float:
        """Make one optimizer step and return its loss."""
        ...

    def save(self, folder: Path) -> None:
        """Write a checkpoint to continue from."""
        ...


def run_training(
    training: Training,
    folder: Path,
    save_every_s: float,
    progress: Callable[[float], str],
    *,
    is_first: bool = True,
) -> None:
    """Train until the plan is done or SIGTERM arrives; the first process prints and saves.

    Args:
        training: The training to advance.
        folder: Folder of the checkpoints.
        save_every_s: Time between two checkpoints, in seconds.
        progress: Returns a line about the mean loss since the last one.
        is_first: True in the process that prints and saves.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: stop.set())
    saved_at = time.monotonic()
    loss = 0.0
    while not training.is_stopping and not training.plan.is_done(training.step, training.elapsed_s):
        loss += training.advance(wants_stop=stop.is_set())
        if training.step % 50 == 0:
            if is_first:
                print(progress(loss / 50), flush=True)
            loss = 0.0
        if is_first and time.monotonic() - saved_at > save_every_s:
            training.save(folder)
            saved_at = time.monotonic()
    if is_first:
        training.save(folder)


def work_together(
    work: Callable[[int, argparse.Namespace], None], options: argparse.Namespace, folder: Path, num_processes: int
) -> None:
    """Run `work` in `num_processes` processes, this one as the first; they meet in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meeting").unlink(missing_ok=True)
    context = torch.multiprocessing.get_context("spawn")
    helpers = [context.Process(target=work, args=(rank, options)) for rank in range(1, num_processes)]
    for helper in helpers:
        helper.start()
    work(0, options)
    for helper in helpers:
        helper.join()


def write_state(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, so that a complete one always exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    torch.save(dict(state), partial)
    partial.replace(path)
