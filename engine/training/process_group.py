"""Data-parallel processes of a training: each takes some of the rows, and gradients are summed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed

from engine.training.batches import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """Group of processes as seen from one of them; a group of one needs no communication."""

    rank: int = 0
    size: int = 1

    def meet(self, place: Path) -> None:
        """Join the group through a file, and wait until every process has joined."""
        if self.size > 1:
            store = distributed.FileStore(str(place.resolve()), self.size)  # type: ignore[attr-defined]
            distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size)

    def share(self, batches: Iterable[MicroBatch]) -> list[MicroBatch]:
        """Return this process's rows of every micro-batch."""
        rows = slice(self.rank, None, self.size)
        shares = [MicroBatch(batch.ids[rows], batch.is_target[rows]) for batch in batches]
        return [share for share in shares if share.ids.shape[0]]

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace every tensor by its sum over the group."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def first(self, number: float) -> float:
        """Return the number of the first process."""
        shared = torch.tensor([number if self.rank == 0 else 0.0], dtype=torch.float64)
        self.sum([shared])
        return float(shared)
