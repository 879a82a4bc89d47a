"""Follower rank: holds a part of the model and executes the leader's commands until the socket closes."""

from __future__ import annotations

import socket

import torch

from engine.attention.base import ForwardContext, KVCache
from engine.models.decoder import Model
from engine.runner.machine import Machine
from engine.tensor_parallel.commands import Command, Forward, Logits, OpenPool, receive_command
from engine.tensor_parallel.group import Group


class FollowerRank:
    """Executor of the leader's commands with tensors that mirror the leader's."""

    def __init__(self, model: Model, machine: Machine, group: Group, block_size: int) -> None:
        self._model = model
        self._machine = machine
        self._group = group
        self._block_size = block_size
        self._caches: list[KVCache] = []

    def serve(self, sock: socket.socket) -> None:
        """Execute commands until the leader is gone. Raises LeaderGoneError, or the errors of the computation."""
        while True:
            self.answer(receive_command(sock))

    @torch.inference_mode()
    def answer(self, command: Command) -> None:
        """Execute one command together with the group."""
        match command:
            case OpenPool():
                # Frees the old pool first, because two pools may not fit.
                self._caches = []
                specs = self._model.attention_specs
                self._caches = self._machine.allocate_pool(specs, command.num_blocks, self._block_size)
            case Forward():
                token_ids, context = self._receive_step(command)
                self._model.forward(token_ids, context, self._caches)
            case Logits():
                shape = (command.num_rows, self._model.config.hidden_size)
                hidden = torch.empty(shape, dtype=self._machine.dtype, device=self._machine.device)
                self._group.send(hidden)
                self._model.logits(hidden)

    def _receive_step(self, command: Forward) -> tuple[torch.Tensor, ForwardContext]:
        num_tokens, num_rows = command.query_starts[-1], len(command.context_lens)
        sizes = [num_tokens, num_tokens, num_tokens, num_rows * command.num_columns]
        content = torch.empty(sum(sizes), dtype=torch.int64, device=self._machine.device)
        self._group.send(content)
        token_ids, positions, slots, tables = torch.split(content, sizes)
        context = ForwardContext(
            positions=positions,
            slot_mapping=slots,
            query_starts=command.query_starts,
            context_lens=command.context_lens,
            block_tables=tables.view(num_rows, command.num_columns),
            block_size=self._block_size,
        )
        return token_ids, context
