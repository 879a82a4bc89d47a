"""Number formats of GGUF tensors: size and layout of one block of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockType:
    """Number format of a tensor: rows consist of blocks of equal size."""

    name: str
    num_numbers: int
    """Number of weights in a block."""
    num_bytes: int
    """Number of bytes of a block."""
    group_size: int = 0
    """Number of weights that share a scale; 0: the numbers have no scale."""
    bits: int = 0
    """Bits of a code of the group layout: 4 or 8; 0: the numbers are not codes."""

    @property
    def is_quantized(self) -> bool:
        """Return whether the numbers are codes with scales."""
        return self.group_size > 0


BLOCK_TYPES: Mapping[int, BlockType] = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18, 32, 4),
    3: BlockType("Q4_1", 32, 20, 32, 4),
    6: BlockType("Q5_0", 32, 22, 32, 8),
    7: BlockType("Q5_1", 32, 24, 32, 8),
    8: BlockType("Q8_0", 32, 34, 32, 8),
    10: BlockType("Q2_K", 256, 84, 16, 8),
    11: BlockType("Q3_K", 256, 110, 16, 8),
    12: BlockType("Q4_K", 256, 144, 32, 4),
    13: BlockType("Q5_K", 256, 176, 32, 8),
    14: BlockType("Q6_K", 256, 210, 16, 8),
    20: BlockType("IQ4_NL", 32, 18, 32, 8),
    23: BlockType("IQ4_XS", 256, 136, 32, 8),
    30: BlockType("BF16", 1, 2),
    39: BlockType("MXFP4", 32, 17, 32, 8),
}
"""Formats that are read, by their number in the file."""

OTHER_TYPES: Mapping[int, str] = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    40: "NVFP4",
}
"""Names of known formats that are not read."""
