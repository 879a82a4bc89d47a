"""Train a finished model's Medusa heads: `python -m engine.training.train_heads --model DIR --out DIR`."""

import argparse
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.batches import Batches, Encoder
from engine.training.forward import hidden_states
from engine.training.heads import Heads, HiddenStateMemory, following_tokens
from engine.training.plan import TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import run_training, work_together, write_state

_MATRIX_LR = 0.01
_VECTOR_LR = 2e-3
_MEMORY = 400_000


class HeadTrainer:
    """Training of heads beside a frozen model: heads, optimizers and progress."""

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
        self.plan = plan
        self.step = 0
        self.elapsed_s = 0.0
        self.is_stopping = False
        self._batch = batch
        self._process_group = process_group
        vocabulary = tokenizer.read_tokenizer(model_dir)
        encoder = Encoder(vocabulary)
        self.model = build(SHAPES[plan.model], tokenizer.token_id(vocabulary, tokenizer.IM_END), encoder.pad)
        weights = {name: value.float() for name, value in load_file(model_dir / "model.safetensors").items()}
        self.model.load_state_dict({"lm_head.weight": weights["model.embed_tokens.weight"], **weights})
        self.model.requires_grad_(requires_grad=False)
        self._batches = Batches(encoder, plan.mix_at, plan.seed, plan.step_tokens)
        self.heads = Heads(self.model.model.embed_tokens.weight, num_heads=num_heads, width=width)
        self._memory = HiddenStateMemory(_MEMORY, self.model.config.hidden_size, num_heads + 1)
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(self.heads.matrices, lr=_MATRIX_LR, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(self.heads.vectors, lr=_VECTOR_LR, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def advance(self, *, wants_stop: bool = False) -> float:
        """Store hidden states of new answers, make one optimizer step, and return the mean loss."""
        started_at = time.monotonic()
        factor = self.plan.lr_factor(self.step, self.elapsed_s)
        for optimizer, lr in zip(self._optimizers, (_MATRIX_LR, _VECTOR_LR), strict=True):
            optimizer.param_groups[0]["lr"] = lr * factor
        with torch.no_grad():
            for batch in self._process_group.share(self._batches.at(self.step)):
                hidden = hidden_states(self.model, batch.ids)[batch.is_target]
                self._memory.put(hidden, following_tokens(batch.ids, batch.is_target, self.heads.num_heads + 1))
        generator = torch.Generator().manual_seed(self.plan.seed + self.step)
        loss = self.heads.loss(*self._memory.draw(self._batch, generator))
        torch.autograd.backward(loss)
        shared = torch.tensor([float(loss.detach()), float(wants_stop)], dtype=torch.float64)
        self._process_group.sum([shared])
        self._process_group.sum([parameter.grad for parameter in self.heads.parameters() if parameter.grad is not None])
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.is_stopping = bool(shared[1])
        # Every process must use the same clock, or their learning rates would diverge.
        self.elapsed_s = self._process_group.first(self.elapsed_s + time.monotonic() - started_at)
        return float(shared[0]) / self._process_group.size

    def save(self, folder: Path) -> None:
        """Write the checkpoint atomically, and the heads in the engine's format."""
        state = {
            "plan": asdict(self.plan),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "heads": self.heads.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        write_state(state, folder / "heads.pt")
        self.heads.export(folder)

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in the folder; stored hidden states are not restored."""
        state: dict[str, Any] = torch.load(folder / "heads.pt", weights_only=True)
        self.step, self.elapsed_s = state["step"], state["elapsed_s"]
        self.heads.load_state_dict(state["heads"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def _progress(trainer: HeadTrainer, loss: float) -> str:
    return f"step {trainer.step} loss {loss:.4f} {trainer.elapsed_s:.0f} s"


def _work(rank: int, options: argparse.Namespace) -> None:
    """Run one process of the training."""
    torch.set_num_threads(1)
    process_group = ProcessGroup(rank=rank, size=options.processes)
    process_group.meet(options.out / "meeting")
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
    trainer = HeadTrainer(
        plan,
        options.model,
        num_heads=options.heads,
        width=options.width,
        batch=options.batch,
        process_group=process_group,
    )
    if options.resume and (options.out / "heads.pt").exists():
        trainer.restore(options.out)
    elif options.start_from is not None:
        trainer.heads.read(options.start_from)
    run_training(trainer, options.out, options.save_every_s, partial(_progress, trainer), is_first=rank == 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of the finished model")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="large", help="the model's shape")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and the heads")
    parser.add_argument("--start-from", type=Path, help="folder of finished heads to train further")
    parser.add_argument("--rate-ratio", type=float, default=1.0, help="learning rates times this, below 1 for weights")
    parser.add_argument("--heads", type=int, default=3, help="tokens predicted ahead")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--hours", type=float, help="training time after which the learning rate has reached zero")
    parser.add_argument("--step-tokens", type=int, default=4096, help="read for each step, by all processes together")
    parser.add_argument("--batch", type=int, default=1536, help="positions in a step of each process")
    parser.add_argument("--processes", type=int, default=2, help="of one thread each, that share every step")
    parser.add_argument("--save-every-s", type=float, default=240)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    return parser.parse_args()


def main() -> None:
    """Run the training from the command line."""
    options = _options()
    work_together(_work, options, options.out, options.processes)


if __name__ == "__main__":
    main()
