"""Reader of tensors that hold a projection of all experts, in the layouts of gpt-oss and of other families.

plain   gate_up_proj         [experts, in, 2 * size], gate and up in turn
down_proj            [experts, size, out]
MXFP4   gate_up_proj_blocks  uint8 [experts, 2 * size, in / 32, 16]: two codes a byte
gate_up_proj_scales  uint8 [experts, 2 * size, in / 32]: exponents
down_proj_blocks, down_proj_scales the same way
both    gate_up_proj_bias    [experts, 2 * size], down_proj_bias [experts, out]
others  gate_up_proj         [experts, 2 * size, in], gate before up
down_proj            [experts, out, size]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ExpertTraits
from engine.models.linear import Linear
from engine.quantization.maker import LinearMaker
from engine.quantization.weights import MXFP4_GROUP, Mxfp4Weight

_CODES_PER_BYTE = 2


class FusedExperts:
    """Maker of each expert's projections from the tensors of all."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        maker: LinearMaker,
        dtype: torch.dtype,
        device: torch.device,
        *,
        takes_own_dtype: bool = False,
    ) -> None:
        """Create the reader.

        Args:
            checkpoint: Tensors of the model.
            maker: Maker of the projections.
            dtype: Dtype of the model.
            device: Device of the model.
            takes_own_dtype: True to leave weights in the checkpoint's dtype, for a packer that converts them.
        """
        self._checkpoint = checkpoint
        self._maker = maker
        self._dtype = dtype
        self._device = device
        self._takes_own_dtype = takes_own_dtype

    def stacked_projections(
        self, prefix: str, traits: ExpertTraits, hidden_size: int
    ) -> Iterator[tuple[Linear, Linear]]:
        """Yield gate and up as one projection, and down, of each expert, from tensors with outputs as rows.

        Raises:
            CheckpointError: Tensors are missing or misshapen.
        """
        num_experts, size = traits.num_experts, traits.size
        gate_up = self._checkpoint.take(f"{prefix}.gate_up_proj", (num_experts, 2 * size, hidden_size))
        down = self._checkpoint.take(f"{prefix}.down_proj", (num_experts, hidden_size, size))
        for index in range(num_experts):
            yield self._stacked(gate_up[index]), self._stacked(down[index])

    def _stacked(self, weight: torch.Tensor) -> Linear:
        return self._maker.dense(weight if self._takes_own_dtype else self._moved(weight))

    def projections(self, prefix: str, traits: ExpertTraits, hidden_size: int) -> list[tuple[Linear, Linear]]:
        """Return gate and up as one projection, and down, of each expert under a prefix.

        Raises:
            CheckpointError: Tensors are missing or misshapen.
        """
        num_experts, size = traits.num_experts, traits.size
        gate_up_of = self._expert_maker(f"{prefix}.gate_up_proj", (num_experts, 2 * size, hidden_size))
        down_of = self._expert_maker(f"{prefix}.down_proj", (num_experts, hidden_size, size))
        halves = torch.cat((torch.arange(0, 2 * size, 2), torch.arange(1, 2 * size, 2)))
        return [(gate_up_of(index, halves), down_of(index, None)) for index in range(num_experts)]

    def _expert_maker(self, name: str, shape: tuple[int, int, int]) -> Callable[[int, torch.Tensor | None], Linear]:
        """Return a function from an expert's index and the order of its outputs to its projection [out, in]."""
        num_experts, num_out, num_in = shape
        bias = self._checkpoint.take(f"{name}_bias", (num_experts, num_out))
        if not self._checkpoint.has(f"{name}_blocks"):
            weight = self._checkpoint.take(name, (num_experts, num_in, num_out))

            def plain(index: int, order: torch.Tensor | None) -> Linear:
                found = _ordered(weight[index].t(), order)
                return self._maker.dense(self._moved(found), self._moved(_ordered(bias[index], order)))

            return plain
        codes, exponents = self._take_mxfp4(name, shape)

        def packed(index: int, order: torch.Tensor | None) -> Linear:
            found = Mxfp4Weight(_ordered(codes[index], order), _ordered(exponents[index], order))
            moved_bias = self._moved(_ordered(bias[index], order))
            return self._maker.published([found.to(self._device)], moved_bias, self._dtype)

        return packed

    def _take_mxfp4(self, name: str, shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        num_experts, num_out, num_in = shape
        if num_in % MXFP4_GROUP:
            raise CheckpointError(f"{name}: {num_in} inputs do not divide into groups of {MXFP4_GROUP}")
        groups = (num_experts, num_out, num_in // MXFP4_GROUP)
        blocks = (*groups, MXFP4_GROUP // _CODES_PER_BYTE)
        codes = self._checkpoint.take_integers(f"{name}_blocks", blocks, torch.uint8)
        return codes.flatten(2), self._checkpoint.take_integers(f"{name}_scales", groups, torch.uint8)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in the model's dtype on its device."""
        moved = torch.empty(tensor.shape, dtype=self._dtype, device=self._device)
        return moved.copy_(tensor)


def _ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Return a copy of the rows in this order; None: as they are."""
    return tensor.contiguous().clone() if order is None else tensor.index_select(0, order)
