"""Train a finished model's Medusa heads: `python -m engine.training.train_heads --model DIR --out DIR`."""

import argparse
from pathlib import Path

import torch

from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.batches import Batches, Encoder, MicroBatch
from engine.training.export import read_weights
from engine.training.forward import hidden_states
from engine.training.heads import Heads, HiddenStateMemory, following_tokens
from engine.training.plan import TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import Training, train_together, training_parser

_MATRIX_LR = 0.01
_VECTOR_LR = 2e-3
_MEMORY = 400_000


class HeadTrainer(Training):
    """Training of heads beside a frozen model; stored hidden states are no part of a checkpoint."""

    state_name = "heads.pt"

    def __init__(
        self,
        plan: TrainingPlan,
        model_dir: Path,
        *,
        num_heads: int,
        width: int,
        batch: int,
        process_group: ProcessGroup,
    ) -> None:
        """Load the model and create the heads.

        Args:
            plan: Schedule of the training.
            model_dir: Folder of the finished model.
            num_heads: Number of tokens to predict.
            width: Inner width of the heads.
            batch: Positions per process and step, drawn from all those stored.
            process_group: Processes of the training.
        """
        torch.manual_seed(plan.seed)
        self._batch = batch
        vocabulary = tokenizer.read_tokenizer(model_dir)
        encoder = Encoder(vocabulary)
        self.model = build(SHAPES[plan.model], tokenizer.token_id(vocabulary, tokenizer.IM_END), encoder.pad)
        self.model.load_state_dict(read_weights(model_dir))
        self.model.requires_grad_(requires_grad=False)
        self.heads = Heads(self.model.model.embed_tokens.weight, num_heads=num_heads, width=width)
        self._memory = HiddenStateMemory(_MEMORY, self.model.config.hidden_size, num_heads + 1)
        optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(self.heads.matrices, lr=_MATRIX_LR, momentum=0.95, weight_decay=0.01), _MATRIX_LR),
            (torch.optim.AdamW(self.heads.vectors, lr=_VECTOR_LR, betas=(0.9, 0.98), weight_decay=0.0), _VECTOR_LR),
        ]
        batches = Batches(encoder, plan.mix_at, plan.seed, plan.step_tokens)
        super().__init__(plan, process_group, self.heads, batches, optimizers)

    def add_gradients(self, batches: list[MicroBatch]) -> float:
        """Store hidden states of new answers, and add the gradients of some of those stored."""
        with torch.no_grad():
            for batch in self.process_group.share(batches):
                hidden = hidden_states(self.model, batch.ids)[batch.is_target]
                self._memory.put(hidden, following_tokens(batch.ids, batch.is_target, self.heads.num_heads + 1))
        generator = torch.Generator().manual_seed(self.plan.seed + self.step)
        loss = self.heads.loss(*self._memory.draw(self._batch, generator))
        torch.autograd.backward(loss)
        return float(loss.detach()) / self.process_group.size

    def export(self, folder: Path) -> None:
        """Write the heads in the engine's format."""
        self.heads.export(folder)


def _make(options: argparse.Namespace, process_group: ProcessGroup) -> HeadTrainer:
    plan = TrainingPlan(
        model=options.shape,
        phases=(("ahead", options.steps),),
        seed=options.seed,
        steps=options.steps,
        hours=options.hours,
        step_tokens=options.step_tokens,
        decay_ratio=0.6,
        rate_ratio=options.rate_ratio,
    )
    sizes = {"num_heads": options.heads, "width": options.width, "batch": options.batch}
    trainer = HeadTrainer(plan, options.model, **sizes, process_group=process_group)
    if options.start_from is not None:
        trainer.heads.read(options.start_from)
    return trainer


def main() -> None:
    """Run the training from the command line."""
    parser = training_parser(__doc__, steps=100_000, processes=2, threads=1)
    parser.add_argument("--model", type=Path, required=True, help="folder of the finished model")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="large", help="the model's shape")
    parser.add_argument("--heads", type=int, default=3, help="tokens predicted ahead")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1536, help="positions in a step of each process")
    train_together(_make, parser.parse_args())


if __name__ == "__main__":
    main()
