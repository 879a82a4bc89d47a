"""Process group of one model's parts, and its collectives."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_TIMEOUT = timedelta(minutes=30)
"""Timeout longer than any start-up. Between steps no process waits in a collective: commands come over sockets."""


class Group:
    """Collectives among `size` processes; the leader has rank 0. All processes must call them in the same order."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls, rank: int, size: int, device: torch.device, rendezvous: Path) -> Group:
        """Join the group through a file in a private folder; return when all ranks are there. Raises RuntimeError."""
        if device.type == "cpu":
            # All processes are on this machine, whatever its name resolves to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            # A file:// URL could not hold every path.
            store=dist.FileStore(str(rendezvous), size),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=_TIMEOUT,
        )
        return cls(rank, size)

    def leave(self) -> None:
        """Close the connections; no collective may follow."""
        dist.destroy_process_group()

    def sum(self, tensor: torch.Tensor) -> None:
        """Replace a contiguous tensor by its sum over all processes."""
        dist.all_reduce(tensor)

    def send(self, tensor: torch.Tensor) -> None:
        """Broadcast the leader's tensor into every process's contiguous tensor."""
        dist.broadcast(tensor, 0)

    def side_by_side(self, tensor: torch.Tensor) -> torch.Tensor:
        """Gather [T, n] of each process to [T, size * n] everywhere, in order of rank."""
        parts = torch.empty(self.size, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        dist.all_gather(list(parts.unbind()), tensor.contiguous())
        return parts.transpose(0, 1).reshape(tensor.shape[0], -1)
