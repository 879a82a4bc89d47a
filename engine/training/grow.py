"""Initialization of the large model from a trained small one, which saves learning the basics twice.

The small model's features fill the first half of every width; two of the six layers start as the identity.
At the start the large model answers like the small one, apart from the noise in its new features.
"""

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

NEW_LAYERS = (2, 5)
WRITERS = ("o_proj.weight", "down_proj.weight")


@torch.no_grad()
def grow(source: "Qwen3ForCausalLM", target: "Qwen3ForCausalLM") -> None:
    """Copy the source into the randomly initialized, wider and deeper target."""
    depth = target.config.num_hidden_layers
    retained = [layer for layer in range(depth) if layer not in NEW_LAYERS]
    assert len(retained) == source.config.num_hidden_layers
    shrink = math.sqrt(source.config.hidden_size / target.config.hidden_size)
    old = dict(source.named_parameters())
    places = {layer: index for index, layer in enumerate(retained)}
    for name, parameter in target.named_parameters():
        parts = name.split(".")
        if name.endswith(WRITERS):
            parameter.zero_()
        if parts[1] == "layers":
            if int(parts[2]) not in places:
                continue
            parts[2] = str(places[int(parts[2])])
        _fill(parameter, old[".".join(parts)], shrink if parameter.shape[0] == target.config.hidden_size else 1.0)


def _fill(parameter: torch.Tensor, old: torch.Tensor, shrink: float) -> None:
    if old.ndim == 2:
        parameter[: old.shape[0], : old.shape[1]] = old
    elif old.shape == parameter.shape:
        parameter.copy_(old)
    else:
        # The new half is zero at first, which doubles the result of a mean-square norm for the old half.
        parameter.fill_(float(old.mean()) * shrink)
        parameter[: old.shape[0]] = old * shrink
