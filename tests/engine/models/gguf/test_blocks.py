"""Blocks of every format become the numbers that the `gguf` library computes, and groups that hold them."""

from __future__ import annotations

import gguf
import pytest
import torch

from engine.models.gguf.block_types import BLOCK_TYPES
from engine.models.gguf.blocks import block_values, write_numbers
from tests.engine.models.gguf.files import random_blocks

QUANTIZED = [number for number, kind in BLOCK_TYPES.items() if kind.is_quantized]
ROW_SIZE = 768


@pytest.mark.parametrize("number", BLOCK_TYPES)
def test_sizes_are_those_of_the_library(number: int) -> None:
    kind = BLOCK_TYPES[number]
    library = gguf.GGMLQuantizationType(number)

    assert (kind.name, (kind.num_numbers, kind.num_bytes)) == (library.name, gguf.GGML_QUANT_SIZES[library])


@pytest.mark.parametrize("number", QUANTIZED)
def test_numbers_equal_those_of_the_library(number: int) -> None:
    library = gguf.GGMLQuantizationType(number)
    raw = random_blocks(library, 5, ROW_SIZE)
    out = torch.empty(5, ROW_SIZE)

    write_numbers(raw, BLOCK_TYPES[number], out)

    assert torch.equal(out, torch.from_numpy(gguf.dequantize(raw.numpy(), library)))


@pytest.mark.parametrize("number", QUANTIZED)
def test_codes_fit_their_bits_and_groups(number: int) -> None:
    kind = BLOCK_TYPES[number]
    values = block_values(random_blocks(gguf.GGMLQuantizationType(number), 3, ROW_SIZE), kind)

    assert int(values.codes.max()) < 1 << values.bits
    assert values.codes.shape == (3, ROW_SIZE)
    assert values.scales.shape == values.offsets.shape == (3, ROW_SIZE // kind.group_size)


def test_many_rows_are_converted_in_pieces() -> None:
    library = gguf.GGMLQuantizationType.Q6_K
    raw = random_blocks(library, 1500, ROW_SIZE)
    out = torch.empty(1500, ROW_SIZE, dtype=torch.bfloat16)

    write_numbers(raw, BLOCK_TYPES[int(library)], out)

    assert torch.equal(out, torch.from_numpy(gguf.dequantize(raw.numpy(), library)).bfloat16())
