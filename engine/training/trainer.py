"""Training of a model in full."""

from pathlib import Path

import torch
from torch.nn import functional

from engine.bundled import model_dir
from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.batches import Batches, Encoder, MicroBatch
from engine.training.export import export, read_weights
from engine.training.forward import hidden_states
from engine.training.grow import grow
from engine.training.plan import MATRIX_LR, OTHER_LR, TrainingPlan
from engine.training.process_group import ProcessGroup
from engine.training.run import Training


class Trainer(Training):
    """Training of all weights of a model by the mean loss per assistant token."""

    state_name = "state.pt"
    max_norm = 1.0

    def __init__(self, plan: TrainingPlan, process_group: ProcessGroup | None = None) -> None:
        torch.manual_seed(plan.seed)
        self.tokenizer = tokenizer.read_tokenizer(model_dir("small"))
        encoder = Encoder(self.tokenizer)
        self.model = build(SHAPES[plan.model], tokenizer.token_id(self.tokenizer, tokenizer.IM_END), encoder.pad)
        hidden = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        rest = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(hidden, lr=MATRIX_LR, momentum=0.95, weight_decay=0.01), MATRIX_LR),
            (torch.optim.AdamW(rest, lr=OTHER_LR, betas=(0.9, 0.98), weight_decay=0.0), OTHER_LR),
        ]
        batches = Batches(encoder, plan.mix_at, plan.seed, plan.step_tokens)
        super().__init__(plan, process_group or ProcessGroup(), self.model, batches, optimizers)

    def export(self, folder: Path) -> None:
        """Write the model in Hugging Face layout."""
        export(self.model, self.tokenizer, folder / "model")

    def grow_from(self, folder: Path) -> None:
        """Start from the checkpoint of a small model."""
        source = build(SHAPES["small"], tokenizer.token_id(self.tokenizer, tokenizer.IM_END), 0)
        source.load_state_dict(torch.load(folder / self.state_name, weights_only=True)["model"])
        grow(source, self.model)

    def start_from(self, folder: Path) -> None:
        """Start from finished weights of the same shape; the optimizers start empty."""
        self.model.load_state_dict(read_weights(folder))

    def add_gradients(self, batches: list[MicroBatch]) -> float:
        """Add the gradients of the mean loss over the group's tokens; return this process's part of it."""
        num_targets = sum(int(batch.is_target.sum()) for batch in batches)
        total = 0.0
        for batch in self.process_group.share(batches):
            loss = self._loss(batch) / num_targets
            torch.autograd.backward(loss)
            total += float(loss.detach())
        return total

    def _loss(self, batch: MicroBatch) -> torch.Tensor:
        hidden = hidden_states(self.model, batch.ids)[batch.is_target]
        logits = functional.linear(hidden, self.model.model.embed_tokens.weight.to(hidden.dtype))
        targets = torch.roll(batch.ids, -1, dims=1)[batch.is_target]
        return functional.cross_entropy(logits.float(), targets, reduction="sum")
