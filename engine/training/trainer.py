"""Training of a model: optimizers, progress and checkpoints."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import functional

from engine.bundled import model_dir
from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.batches import Batches, Encoder, MicroBatch
from engine.training.export import export
from engine.training.forward import hidden_states
from engine.training.grow import grow
from engine.training.plan import MATRIX_LR, OTHER_LR, TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import write_state


class Trainer:
    """Model, optimizers and progress, which a checkpoint holds."""

    def __init__(self, plan: TrainingPlan, process_group: ProcessGroup | None = None) -> None:
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.is_stopping = False
        self._process_group = process_group or ProcessGroup()
        self.step = 0
        self.num_tokens = 0
        self.elapsed_s = 0.0
        self.tokenizer = tokenizer.read_tokenizer(model_dir("small"))
        encoder = Encoder(self.tokenizer)
        self.model = build(SHAPES[plan.model], tokenizer.token_id(self.tokenizer, tokenizer.IM_END), encoder.pad)
        self._batches = Batches(encoder, plan.mix_at, plan.seed, plan.step_tokens)
        hidden = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        rest = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(hidden, lr=MATRIX_LR, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(rest, lr=OTHER_LR, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def advance(self, *, wants_stop: bool = False) -> float:
        """Make one optimizer step and return the mean loss per assistant token; any process may request a stop."""
        started_at = time.monotonic()
        factor = self.plan.lr_factor(self.step, self.elapsed_s)
        for optimizer, lr in zip(self._optimizers, (MATRIX_LR, OTHER_LR), strict=True):
            optimizer.param_groups[0]["lr"] = lr * factor
        batches = self._batches.at(self.step)
        self.num_tokens += sum(batch.ids.numel() for batch in batches)
        loss = self._accumulate(
            self._process_group.share(batches), sum(int(batch.is_target.sum()) for batch in batches)
        )
        shared = torch.tensor([loss, float(wants_stop)], dtype=torch.float64)
        self._process_group.sum([shared])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.is_stopping = bool(shared[1])
        # Every process must use the same clock, or their learning rates would diverge.
        self.elapsed_s = self._process_group.first(self.elapsed_s + time.monotonic() - started_at)
        return float(shared[0])

    def save(self, folder: Path) -> None:
        """Write the checkpoint atomically, and the model in Hugging Face layout."""
        state = {
            "plan": asdict(self.plan),
            "step": self.step,
            "num_tokens": self.num_tokens,
            "elapsed_s": self.elapsed_s,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        write_state(state, folder / "state.pt")
        export(self.model, self.tokenizer, folder / "model")

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in the folder."""
        state: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)
        self.step, self.num_tokens, self.elapsed_s = state["step"], state["num_tokens"], state["elapsed_s"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def grow_from(self, folder: Path) -> None:
        """Start from the checkpoint of a small model."""
        source = build(SHAPES["small"], tokenizer.token_id(self.tokenizer, tokenizer.IM_END), 0)
        source.load_state_dict(torch.load(folder / "state.pt", weights_only=True)["model"])
        grow(source, self.model)

    def start_from(self, folder: Path) -> None:
        """Start from finished weights of the same shape; the optimizers start empty."""
        weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
        # The output layer shares the embedding's tensor and is not stored twice.
        self.model.load_state_dict({"lm_head.weight": weights["model.embed_tokens.weight"], **weights})

    def _accumulate(self, batches: list[MicroBatch], num_targets: int) -> float:
        """Compute the gradients of the mean loss, summed over the group; return this process's part of the loss."""
        total = 0.0
        for batch in batches:
            loss = self._loss(batch) / num_targets
            torch.autograd.backward(loss)
            total += float(loss.detach())
        self._process_group.sum(
            [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.model.parameters()]
        )
        return total

    def _loss(self, batch: MicroBatch) -> torch.Tensor:
        hidden = hidden_states(self.model, batch.ids)[batch.is_target]
        logits = functional.linear(hidden, self.model.model.embed_tokens.weight.to(hidden.dtype))
        targets = torch.roll(batch.ids, -1, dims=1)[batch.is_target]
        return functional.cross_entropy(logits.float(), targets, reduction="sum")
