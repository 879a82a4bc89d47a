"""Trains one of the two models: `python -m engine.bundled.train --model large --out DIR --resume`."""

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from engine.bundled import model_dir, tokenizer
from engine.bundled.architecture import SHAPES, build
from engine.bundled.batches import Batches, Encoder, MicroBatch
from engine.bundled.export import export
from engine.bundled.generator import MIXES, Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What decides the result of a training: same plan and same machine, same weights."""

    model: str
    mix: str
    seed: int = 7
    steps: int = 10_000
    hours: float | None = None
    step_tokens: int = 4096
    matrix_lr: float = 0.012
    other_lr: float = 3e-3
    warmup_steps: int = 100
    decay_ratio: float = 0.3

    def lr_factor(self, step: int, elapsed_s: float) -> float:
        """Warm-up, then flat, then linear to zero; with a time limit the clock may start the decline earlier."""
        progress = step / self.steps
        if self.hours is not None:
            progress = max(progress, elapsed_s / (self.hours * 3600))
        decline = max(0.0, 1.0 - progress) / self.decay_ratio
        return min(1.0, (step + 1) / self.warmup_steps, decline)

    def is_done(self, step: int, elapsed_s: float) -> bool:
        """Whether steps or hours are used up."""
        return step >= self.steps or (self.hours is not None and elapsed_s >= self.hours * 3600)


class Trainer:
    """Model, optimizers and progress; everything a checkpoint holds."""

    def __init__(self, plan: Plan, mix: Mix | None = None) -> None:
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.step = 0
        self.num_tokens = 0
        self.elapsed_s = 0.0
        self.tokenizer = tokenizer.load(model_dir("small"))
        encoder = Encoder(self.tokenizer)
        self.model = build(SHAPES[plan.model], self.tokenizer.token_to_id(tokenizer.IM_END), encoder.pad)
        self._batches = Batches(encoder, mix or MIXES[plan.mix], plan.seed, plan.step_tokens)
        hidden = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        rest = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(hidden, lr=plan.matrix_lr, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(rest, lr=plan.other_lr, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def advance(self) -> float:
        """One optimizer step; returns the mean loss per assistant token."""
        started_at = time.monotonic()
        factor = self.plan.lr_factor(self.step, self.elapsed_s)
        for optimizer, lr in zip(self._optimizers, (self.plan.matrix_lr, self.plan.other_lr), strict=True):
            optimizer.param_groups[0]["lr"] = lr * factor
        batches = self._batches.at(self.step)
        num_targets = sum(int(batch.is_target.sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            loss = self._loss(batch) / num_targets
            torch.autograd.backward(loss)
            total += float(loss.detach())
            self.num_tokens += batch.ids.numel()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.elapsed_s += time.monotonic() - started_at
        return total

    def save(self, folder: Path) -> None:
        """Write the checkpoint, atomically, and the model in Hugging Face layout."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "plan": asdict(self.plan),
            "step": self.step,
            "num_tokens": self.num_tokens,
            "elapsed_s": self.elapsed_s,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        partial = folder / "state.pt.partial"
        torch.save(state, partial)
        partial.replace(folder / "state.pt")
        export(self.model, self.tokenizer, folder / "model")

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in the folder."""
        state: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)
        self.step, self.num_tokens, self.elapsed_s = state["step"], state["num_tokens"], state["elapsed_s"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def _loss(self, batch: MicroBatch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
            logits = functional.linear(hidden[batch.is_target], self.model.model.embed_tokens.weight)
        targets = torch.roll(batch.ids, -1, dims=1)[batch.is_target]
        return functional.cross_entropy(logits.float(), targets, reduction="sum")


def run(trainer: Trainer, folder: Path, save_every_s: float) -> None:
    """Train until the plan is done; print a line every 50 steps."""
    saved_at = time.monotonic()
    loss = 0.0
    while not trainer.plan.is_done(trainer.step, trainer.elapsed_s):
        loss += trainer.advance()
        if trainer.step % 50 == 0:
            rate = trainer.num_tokens / trainer.elapsed_s
            print(
                f"step {trainer.step} loss {loss / 50:.4f} tokens {trainer.num_tokens / 1e6:.2f}M "
                f"{rate:.0f} tok/s {trainer.elapsed_s:.0f} s",
                flush=True,
            )
            loss = 0.0
        if time.monotonic() - saved_at > save_every_s:
            trainer.save(folder)
            saved_at = time.monotonic()
    trainer.save(folder)


def main() -> None:
    """Command line of the training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("small", "large"), required=True)
    parser.add_argument("--mix", choices=tuple(MIXES), help="which mix of tasks (default: the model's own)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and the model")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--hours", type=float, help="training time after which the learning rate has reached zero")
    parser.add_argument("--step-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every-s", type=float, default=240)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    plan = Plan(
        model=options.model,
        mix=options.mix or options.model,
        seed=options.seed,
        steps=options.steps,
        hours=options.hours,
        step_tokens=options.step_tokens,
    )
    trainer = Trainer(plan)
    if options.resume and (options.out / "state.pt").exists():
        trainer.restore(options.out)
    run(trainer, options.out, options.save_every_s)


if __name__ == "__main__":
    main()
