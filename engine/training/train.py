"""Train one of the two models: `python -m engine.training.train --model large --out DIR --resume`."""

import argparse
from functools import partial
from pathlib import Path

import torch

from engine.training.plan import PHASES, TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import run_training, work_together
from engine.training.trainer import Trainer


def _progress(trainer: Trainer, loss: float) -> str:
    rate = trainer.num_tokens / trainer.elapsed_s
    return (
        f"step {trainer.step} loss {loss:.4f} tokens {trainer.num_tokens / 1e6:.2f}M {rate:.0f} tok/s "
        f"{trainer.elapsed_s:.0f} s"
    )


def _work(rank: int, options: argparse.Namespace) -> None:
    """Run one process of the training."""
    torch.set_num_threads(options.threads)
    process_group = ProcessGroup(rank=rank, size=options.processes)
    process_group.meet(options.out / "meeting")
    plan = TrainingPlan(
        model=options.model,
        phases=options.phases,
        seed=options.seed,
        steps=options.steps,
        hours=options.hours,
        step_tokens=options.step_tokens,
        decay_ratio=options.decay_ratio,
        rate_ratio=options.rate_ratio,
    )
    trainer = Trainer(plan, process_group)
    if options.resume and (options.out / "state.pt").exists():
        trainer.restore(options.out)
    elif options.grow_from is not None:
        trainer.grow_from(options.grow_from)
    elif options.start_from is not None:
        trainer.start_from(options.start_from)
    run_training(trainer, options.out, options.save_every_s, partial(_progress, trainer), is_first=rank == 0)


def _phases(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((mix, int(until)) for mix, until in (phase.split(":") for phase in text.split(",") if phase))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("small", "large"), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and the model")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--phases", type=_phases, default=PHASES, help="such as warmup:2000,shared:5000")
    parser.add_argument("--hours", type=float, help="training time after which the learning rate has reached zero")
    parser.add_argument("--step-tokens", type=int, default=4096)
    parser.add_argument("--decay-ratio", type=float, default=0.3, help="part of the run in which the rate declines")
    parser.add_argument("--processes", type=int, default=1, help="processes that share every step")
    parser.add_argument("--threads", type=int, default=2, help="threads of each process")
    parser.add_argument("--save-every-s", type=float, default=240)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    parser.add_argument("--grow-from", type=Path, help="folder of a small model's checkpoint to start from")
    parser.add_argument("--start-from", type=Path, help="folder of finished weights to train further, without a state")
    parser.add_argument("--rate-ratio", type=float, default=1.0, help="learning rates times this, below 1 for weights")
    return parser.parse_args()


def main() -> None:
    """Run the training from the command line."""
    options = _options()
    work_together(_work, options, options.out, options.processes)


if __name__ == "__main__":
    main()
