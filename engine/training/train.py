"""Train one of the two models: `python -m engine.training.train --model large --out DIR --resume`."""

import argparse
from pathlib import Path

from engine.training.plan import PHASES, TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import train_together, training_parser
from engine.training.trainer import Trainer


def _make(options: argparse.Namespace, process_group: ProcessGroup) -> Trainer:
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
    if options.grow_from is not None:
        trainer.grow_from(options.grow_from)
    elif options.start_from is not None:
        trainer.start_from(options.start_from)
    return trainer


def _phases(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((mix, int(until)) for mix, until in (phase.split(":") for phase in text.split(",") if phase))


def main() -> None:
    """Run the training from the command line."""
    parser = training_parser(__doc__, steps=10_000, processes=1, threads=2)
    parser.add_argument("--model", choices=("small", "large"), required=True)
    parser.add_argument("--phases", type=_phases, default=PHASES, help="such as warmup:2000,shared:5000")
    parser.add_argument("--decay-ratio", type=float, default=0.3, help="part of the run in which the rate declines")
    parser.add_argument("--grow-from", type=Path, help="folder of a small model's checkpoint to start from")
    train_together(_make, parser.parse_args())


if __name__ == "__main__":
    main()
