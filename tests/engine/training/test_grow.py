"""A large model grown from a small one begins where that one is."""

from __future__ import annotations

import torch

from engine.training.architecture import SHAPES, build
from engine.training.grow import NEW_LAYERS, grow


def test_without_the_noise_of_new_features_a_grown_model_answers_as_the_small_one() -> None:
    torch.manual_seed(1)
    small, large = build(SHAPES["small"], 1, 2), build(SHAPES["large"], 1, 2)
    with torch.no_grad():
        for name, parameter in small.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.mul_(5.0)
        for parameter in large.parameters():
            parameter.zero_()
    grow(small, large)
    ids = torch.randint(0, small.config.vocab_size, (2, 20))
    with torch.no_grad():
        ours, theirs = small(ids).logits, large(ids).logits
    assert torch.allclose(ours, theirs, atol=0.01 * float(ours.std()))


def test_new_layers_begin_as_the_identity() -> None:
    small, large = build(SHAPES["small"], 1, 2), build(SHAPES["large"], 1, 2)
    grow(small, large)
    for number in NEW_LAYERS:
        layer = large.model.layers[number]
        assert not layer.self_attn.o_proj.weight.any()
        assert not layer.mlp.down_proj.weight.any()
    first = small.model.layers[0].mlp.up_proj.weight
    assert torch.equal(large.model.layers[0].mlp.up_proj.weight[: first.shape[0], : first.shape[1]], first)
