"""One process's share of a checkpoint's tensors, cut from the memory-mapped files.

Column-parallel projections (queries, keys, values, gate, up) are cut by outputs, row-parallel ones (attention output,
down) by inputs. Intermediate activations thus stay in a process. Norms, routers and the embedding are replicated.
Packed checkpoints have the opposite layout: inputs first, outputs second.
"""

from __future__ import annotations

from pathlib import Path

import torch

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ModelConfig

_FANS_OUT = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3"}) | {"q_norm", "k_norm"}
"""Modules cut by outputs. A norm over all heads is cut like the heads; a norm of each head is taken whole."""
_FANS_IN = frozenset({"o_proj", "down_proj", "w2"})
_OF_ALL_EXPERTS = {"gate_up_proj": (1, 2), "down_proj": (2, 1)}
"""Axis of the inner size, and number of projections along it, in tensors [experts, out, in] of all experts."""
_PACKED = frozenset({"qweight", "qzeros", "scales"})


class PartCheckpoint(Checkpoint):
    """Tensors of rank `rank` among `size`; callers pass the shapes of the rank's part."""

    def __init__(self, model_dir: Path, config: ModelConfig, rank: int, size: int) -> None:
        """Open the checkpoint of a model folder; `config` is the whole model's."""
        super().__init__(model_dir, is_multimodal=config.is_multimodal)
        self._rank = rank
        self._size = size
        kv_share = config.num_kv_heads * config.head_dim
        # A tensor with several projections is cut projection by projection.
        self._stacked = {
            "qkv_proj": [config.num_heads * config.head_dim, kv_share, kv_share],
            "gate_up_proj": [config.intermediate_size] * 2,
        }

    def _take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if not self.has(name):
            return super()._take(name, shape)
        whole = self.shape(name)
        module, _, kind = name.rpartition(".")
        module = module.rpartition(".")[2]
        if module in _FANS_IN and kind == "bias":
            # The products are summed over ranks, so only one rank may add the bias.
            bias = super()._take(name, shape)
            return bias if self._rank == 0 else torch.zeros_like(bias)
        if kind in _OF_ALL_EXPERTS:
            axis, num_parts = _OF_ALL_EXPERTS[kind]
            parts = super()._take(name, whole).chunk(num_parts, axis)
            return self._checked(name, torch.cat([self._share(name, part, axis) for part in parts], axis), shape)
        if whole == shape or not self._is_cut(module):
            return super()._take(name, shape)
        if kind == "g_idx":
            return self._groups(name, super()._take(name, whole))
        axis = int((module in _FANS_IN) != (kind in _PACKED))
        tensor = super()._take(name, whole)
        parts = torch.split(tensor, self._stacked[module], axis) if module in self._stacked else (tensor,)
        mine = [self._share(name, part, axis) for part in parts]
        return self._checked(name, mine[0] if len(mine) == 1 else torch.cat(mine, axis), shape)

    def has_blocks(self, name: str) -> bool:
        """Return False: quantized blocks are read as numbers before they are cut."""
        return False

    def _is_cut(self, module: str) -> bool:
        return module in _FANS_OUT or module in _FANS_IN or module in self._stacked

    def _share(self, name: str, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        length = tensor.shape[axis]
        if length % self._size:
            raise self._error(name, f"{length} rows or columns cannot be split over {self._size} processes")
        return tensor.narrow(axis, self._rank * length // self._size, length // self._size)

    def _groups(self, name: str, group_of_input: torch.Tensor) -> torch.Tensor:
        """Return the groups of this part's inputs, numbered from its own first one."""
        mine = self._share(name, group_of_input, 0)
        num_groups = (int(group_of_input.max()) + 1) // self._size
        mine = mine - self._rank * num_groups
        if int(mine.min()) < 0 or int(mine.max()) >= num_groups:
            problem = "groups in any order (desc_act) cannot be split over several processes"
            raise CheckpointError(f"{self._model_dir}: {name}: {problem}")
        return mine

    def _checked(self, name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        if tuple(tensor.shape) != shape:
            raise self._error(name, f"expected a share of shape {list(shape)}, got {list(tensor.shape)}")
        return tensor
