"""The training's own forward pass computes what transformers does."""

from __future__ import annotations

import torch

from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.forward import hidden_states


def test_the_training_forward_agrees_with_transformers() -> None:
    torch.manual_seed(0)
    model = build(SHAPES["tiny"], 1, 2)
    ids = torch.randint(0, tokenizer.VOCAB_SIZE, (2, 300))
    with torch.no_grad():
        ours = hidden_states(model, ids).float()
        theirs = model.model(input_ids=ids).last_hidden_state
    assert (ours - theirs).norm() / theirs.norm() < 0.02


def test_the_gradients_agree_with_transformers() -> None:
    torch.manual_seed(0)
    model = build(SHAPES["tiny"], 1, 2)
    ids = torch.randint(0, tokenizer.VOCAB_SIZE, (2, 40))
    gradients = []
    for hidden in (hidden_states(model, ids).float(), model.model(input_ids=ids).last_hidden_state):
        model.zero_grad()
        torch.autograd.backward((hidden * torch.linspace(-1, 1, hidden.shape[-1])).sum())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 0.03
