"""Weights packed for compiled products, and their rows unpacked again."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.cpu.gemm.tiles import LANES

_PIECE_NUMBERS = 1 << 20
"""Numbers that are packed at a time, so that the copies in between fit the cache."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """Weights [out, in] as vectors of LANES outputs, padded with zeros.

    The outputs of a vector lie side by side for each input. In narrower dtypes several inputs are interleaved: two in
    bfloat16, and four where integers are multiplied.
    """

    packed: torch.Tensor
    """[out / LANES, in / together, LANES, together]."""
    scales: torch.Tensor | None
    """float32 [out]: scale of each output; None: 1."""
    num_outputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.num_outputs, self.packed.shape[1] * self.packed.shape[3]

    def rows(self, start: int, end: int) -> torch.Tensor:
        """Return the weights of outputs from `start`, a multiple of LANES, to `end` as float32 [end - start, in]."""
        vectors = self.packed[start // LANES : num_vectors(end)]
        found = vectors.permute(0, 2, 1, 3).reshape(-1, self.shape[1])[: end - start].float()
        return found if self.scales is None else found.mul_(self.scales[start:end].unsqueeze(1))


def num_vectors(num_outputs: int) -> int:
    """Return the number of vectors that hold this many outputs."""
    return -(-num_outputs // LANES)


def pack_into(packed: torch.Tensor, weight: torch.Tensor) -> None:
    """Pack weights [out, in] into zeros [out / LANES, in / together, LANES, together], a few rows at a time."""
    num_outputs, num_inputs = weight.shape
    together = packed.shape[3]
    num_rows = max(1, _PIECE_NUMBERS // (num_inputs * LANES)) * LANES
    whole = num_outputs // LANES * LANES
    for start in range(0, whole, num_rows):
        piece = weight[start : min(start + num_rows, whole)].to(packed.dtype)
        ordered = piece.view(-1, LANES, num_inputs // together, together).transpose(1, 2)
        packed[start // LANES : start // LANES + ordered.shape[0]].copy_(ordered)
    if whole < num_outputs:
        left = weight[whole:].to(packed.dtype).view(-1, num_inputs // together, together)
        packed[-1, :, : num_outputs - whole].copy_(left.transpose(0, 1))
