"""Shared parts of all trainings: optimizer steps, checkpoints, the loop and its command line."""

import argparse
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from engine.training.batches import Batches, MicroBatch
from engine.training.plan import TrainingPlan
from engine.training.process_group import ProcessGroup


class Training(ABC):
    """A module, its optimizers and its progress, which a checkpoint holds."""

    state_name: ClassVar[str]
    """Name of the checkpoint's file."""
    max_norm: ClassVar[float] = float("inf")
    """Norm to which gradients are clipped."""

    def __init__(
        self,
        plan: TrainingPlan,
        process_group: ProcessGroup,
        module: torch.nn.Module,
        batches: Batches,
        optimizers: Sequence[tuple[torch.optim.Optimizer, float]],
    ) -> None:
        """Begin at the first step; each optimizer comes with its learning rate."""
        self.plan = plan
        self.step = 0
        self.num_tokens = 0
        self.elapsed_s = 0.0
        self.is_stopping = False
        self.process_group = process_group
        self._module = module
        self._batches = batches
        self._optimizers = list(optimizers)

    @abstractmethod
    def add_gradients(self, batches: list[MicroBatch]) -> float:
        """Add the gradients of this process's share of a step; return its share of the mean loss."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write what was trained in the format that the engine reads."""

    def advance(self, *, wants_stop: bool = False) -> float:
        """Make one optimizer step and return the mean loss; any process may request a stop."""
        started_at = time.monotonic()
        factor = self.plan.lr_factor(self.step, self.elapsed_s)
        for optimizer, lr in self._optimizers:
            optimizer.param_groups[0]["lr"] = lr * factor
        batches = self._batches.at(self.step)
        self.num_tokens += sum(batch.ids.numel() for batch in batches)
        shared = torch.tensor([self.add_gradients(batches), float(wants_stop)], dtype=torch.float64)
        self.process_group.sum([shared])
        parameters = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        self.process_group.sum([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters])
        torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
        for optimizer, _ in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.is_stopping = bool(shared[1])
        # Every process must use the same clock, or their learning rates would diverge.
        self.elapsed_s = self.process_group.first(self.elapsed_s + time.monotonic() - started_at)
        return float(shared[0])

    def save(self, folder: Path) -> None:
        """Write the checkpoint atomically, and what was trained in the engine's format."""
        state = {
            "plan": asdict(self.plan),
            "step": self.step,
            "num_tokens": self.num_tokens,
            "elapsed_s": self.elapsed_s,
            "model": self._module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
        }
        write_state(state, folder / self.state_name)
        self.export(folder)

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in the folder."""
        state: dict[str, Any] = torch.load(folder / self.state_name, weights_only=True)
        self.step, self.num_tokens, self.elapsed_s = state["step"], state["num_tokens"], state["elapsed_s"]
        self._module.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def progress(self, loss: float) -> str:
        """Return a line about the mean loss since the last one."""
        rate = self.num_tokens / self.elapsed_s
        return (
            f"step {self.step} loss {loss:.4f} tokens {self.num_tokens / 1e6:.2f}M {rate:.0f} tok/s "
            f"{self.elapsed_s:.0f} s"
        )


def run_training(training: Training, folder: Path, save_every_s: float) -> None:
    """Train until the plan is done or SIGTERM arrives; the first process prints, and saves every so many seconds."""
    is_first = training.process_group.rank == 0
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: stop.set())
    saved_at = time.monotonic()
    loss = 0.0
    while not training.is_stopping and not training.plan.is_done(training.step, training.elapsed_s):
        loss += training.advance(wants_stop=stop.is_set())
        if training.step % 50 == 0:
            if is_first:
                print(training.progress(loss / 50), flush=True)
            loss = 0.0
        if is_first and time.monotonic() - saved_at > save_every_s:
            training.save(folder)
            saved_at = time.monotonic()
    if is_first:
        training.save(folder)


def training_parser(description: str | None, *, steps: int, processes: int, threads: int) -> argparse.ArgumentParser:
    """Return a parser of the options that all trainings have, with these defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and the result")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--hours", type=float, help="training time after which the learning rate has reached zero")
    parser.add_argument("--step-tokens", type=int, default=4096, help="read for each step, by all processes together")
    parser.add_argument("--rate-ratio", type=float, default=1.0, help="learning rates times this, below 1 for weights")
    parser.add_argument("--processes", type=int, default=processes, help="processes that share every step")
    parser.add_argument("--threads", type=int, default=threads, help="threads of each process")
    parser.add_argument("--save-every-s", type=float, default=240)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    parser.add_argument("--start-from", type=Path, help="folder of a finished result to train further, without a state")
    return parser


def train_together(make: Callable[[argparse.Namespace, ProcessGroup], Training], options: argparse.Namespace) -> None:
    """Run a training in the processes of the options, this one as the first; they meet in the folder."""
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "meeting").unlink(missing_ok=True)
    context = torch.multiprocessing.get_context("spawn")
    work = partial(_work, make, options)
    helpers = [context.Process(target=work, args=(rank,)) for rank in range(1, options.processes)]
    for helper in helpers:
        helper.start()
    work(0)
    for helper in helpers:
        helper.join()


def _work(make: Callable[[argparse.Namespace, ProcessGroup], Training], options: argparse.Namespace, rank: int) -> None:
    """Run one process of a training."""
    torch.set_num_threads(options.threads)
    process_group = ProcessGroup(rank=rank, size=options.processes)
    process_group.meet(options.out / "meeting")
    training = make(options, process_group)
    if options.resume and (options.out / training.state_name).exists():
        training.restore(options.out)
    run_training(training, options.out, options.save_every_s)


def write_state(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, so that a complete one always exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    torch.save(dict(state), partial)
    partial.replace(path)
