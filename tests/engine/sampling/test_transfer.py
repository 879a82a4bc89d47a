"""Small arrays on their way to a device."""

from __future__ import annotations

import torch

from engine.sampling.transfer import to_device

CPU = torch.device("cpu")


def test_keys_of_64_bits_arrive_whole() -> None:
    keys = [2**62 + 1, -(2**63), 7]
    assert to_device(keys, torch.int64, CPU).tolist() == keys


def test_no_numbers_are_an_empty_tensor_of_the_type() -> None:
    found = to_device([], torch.float32, CPU)
    assert (found.shape, found.dtype) == ((0,), torch.float32)
