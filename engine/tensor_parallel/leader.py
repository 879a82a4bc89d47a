"""Leader's side of tensor parallelism: a model whose calls run in all processes of the group."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import torch

from engine.attention.base import ForwardContext, KVCache
from engine.models.decoder import Model
from engine.tensor_parallel.commands import Command, Forward, Logits, OpenPool, send_command
from engine.tensor_parallel.group import Group


class RankGroupBrokenError(RuntimeError):
    """A process of the group failed within a call, so the states of the processes no longer match."""


class LeaderModel:
    """Rank 0's part of a model; sends each command to the other ranks and computes it with them.

    Only the leader schedules, samples and holds sequences. After a failure every call fails. The core then ends and is
    restarted with a new group.
    """

    def __init__(self, part: Model, group: Group, followers: Sequence[socket.socket]) -> None:
        self.config = part.config
        self.attention_specs = part.attention_specs
        self._part = part
        self._group = group
        self._followers = list(followers)
        self._is_broken = False

    def open_pool(self, num_blocks: int) -> None:
        """Make the other ranks allocate their KV pools; the previous ones are freed."""
        self._broadcast(OpenPool(num_blocks))

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Return the final hidden states [T, hidden]; each process writes its heads' keys and values."""
        self._broadcast(Forward(context.query_starts, context.context_lens, context.block_tables.shape[1]))
        parts = (token_ids, context.positions, context.slot_mapping, context.block_tables.flatten())
        try:
            self._group.send(torch.cat([part.to(torch.int64) for part in parts]))
            return self._part.forward(token_ids, context, caches)
        except BaseException:
            self._is_broken = True
            raise

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        self._broadcast(Logits(hidden.shape[0]))
        try:
            self._group.send(hidden.contiguous())
            return self._part.logits(hidden)
        except BaseException:
            self._is_broken = True
            raise

    def _broadcast(self, command: Command) -> None:
        if self._is_broken:
            raise RankGroupBrokenError("an earlier step failed in one of the processes")
        try:
            for follower in self._followers:
                send_command(follower, command)
        except OSError as error:
            self._is_broken = True
            raise RankGroupBrokenError(f"a process of the rank group is gone: {error}") from error
