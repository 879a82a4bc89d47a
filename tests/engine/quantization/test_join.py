"""Weights with the same inputs become one weight, whatever their formats."""

from __future__ import annotations

import torch

from engine.quantization.join import join_any, join_outputs
from engine.quantization.weights import GroupWeight, PlainWeight, quantize_channels


def grouped(bits: int, group_size: int, order: torch.Tensor | None = None) -> GroupWeight:
    """A random weight of 3 outputs and 64 inputs."""
    codes = torch.randint(0, 1 << bits, (3, 64)).to(torch.uint8)
    scales, zeros = torch.rand(2, 3, 64 // group_size)
    return GroupWeight(codes, scales, zeros, bits, order)


def test_groups_of_other_sizes_and_bits_keep_their_numbers() -> None:
    parts = [grouped(4, 64), grouped(8, 16), grouped(5, 32)]
    assert join_outputs(parts) is None

    joined = join_any(parts)

    assert isinstance(joined, GroupWeight)
    assert (joined.bits, joined.group_size) == (8, 16)
    assert torch.equal(joined.dequantize(), torch.cat([part.dequantize() for part in parts]))


def test_other_mixtures_are_dequantized() -> None:
    for other in (
        PlainWeight(torch.rand(2, 64)),
        quantize_channels(torch.rand(2, 64)),
        grouped(4, 32, torch.arange(64)),
    ):
        parts = [grouped(4, 32), other]
        joined = join_any(parts)
        assert isinstance(joined, PlainWeight)
        assert torch.equal(joined.codes, torch.cat([part.dequantize() for part in parts]))
