"""Codes packed into int32 words, and groups of inputs in any order or too large for the kernels."""

from __future__ import annotations

import torch

from engine.models.config.checkpoint import CheckpointError
from engine.quantization.weights import GroupWeight

_LARGEST_GROUP = 128


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack int32 [rows, columns] to uint8 [rows, columns * n]; codes of a word are adjacent, lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    return (words.unsqueeze(-1) >> shifts).bitwise_and_((1 << bits) - 1).to(torch.uint8).flatten(1)


def group_order(group_of_input: torch.Tensor, num_groups: int, name: str) -> torch.Tensor | None:
    """Return the inputs sorted by group; None if they are sorted already.

    Raises:
        CheckpointError: Groups differ in size; the message begins with the tensor's name.
    """
    size = len(group_of_input) // num_groups
    expected = torch.arange(len(group_of_input)) // size
    if torch.equal(group_of_input, expected):
        return None
    order = group_of_input.argsort(stable=True)
    if not torch.equal(group_of_input[order], expected):
        raise CheckpointError(f"{name}: expected {num_groups} groups of {size} inputs each")
    return order


def split_large_groups(weight: GroupWeight) -> GroupWeight:
    """Return the weight in groups small enough for the kernels; parts of a group repeat its scale and zero."""
    size = weight.group_size
    if size <= _LARGEST_GROUP:
        return weight
    part = next((part for part in (128, 64, 32) if size % part == 0), size)
    scales, zeros = (t.repeat_interleave(size // part, 1) for t in (weight.scales, weight.zeros))
    return GroupWeight(weight.codes, scales, zeros, weight.bits, weight.order)
