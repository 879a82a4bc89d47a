"""The leader and a follower over a socket, the group faked: the follower computes the step that the leader does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.base import ForwardContext, KVCache
from engine.config import CoreConfig
from engine.models.families.registry import read_model_config
from engine.runner.machine import Machine, find_machine
from engine.tensor_parallel.commands import (
    Command,
    Forward,
    LeaderGoneError,
    Logits,
    OpenPool,
    receive_command,
    send_command,
)
from engine.tensor_parallel.follower import FollowerRank
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.leader import LeaderModel, RankGroupBrokenError
from tests.engine.models.checkpoints import make_reference, save_checkpoint

CPU = torch.device("cpu")


class FakeGroup(Group):
    """What the leader sends is what the follower receives."""

    def __init__(self, rank: int, sent: list[torch.Tensor]) -> None:
        super().__init__(rank, 2)
        self._sent = sent

    def send(self, tensor: torch.Tensor) -> None:
        """Keep it, or take what was stored."""
        if self.rank == 0:
            self._sent.append(tensor.clone())
        else:
            tensor.copy_(self._sent.pop(0))


class RecordingModel:
    """Remembers its calls; fails on request."""

    def __init__(self, folder: Path) -> None:
        self.config = read_model_config(folder)
        self.attention_specs: list[Any] = []
        self.calls: list[Any] = []
        self.fails = False

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """[T, hidden] of zeros."""
        if self.fails:
            raise RuntimeError("out of memory")
        fields = (context.positions, context.slot_mapping, context.block_tables)
        self.calls.append([token_ids.tolist(), *(field.tolist() for field in fields)])
        self.calls.append((context.query_starts, context.context_lens, context.block_size))
        return torch.zeros(len(token_ids), self.config.hidden_size)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, vocab] of zeros."""
        self.calls.append(hidden.tolist())
        return torch.zeros(len(hidden), self.config.vocab_size)


class Pair:
    """A leader and a follower in one process."""

    def __init__(self, folder: Path, ours: socket.socket, theirs: socket.socket) -> None:
        sent: list[torch.Tensor] = []
        self.models = RecordingModel(folder), RecordingModel(folder)
        self.leader = LeaderModel(self.models[0], FakeGroup(0, sent), [ours])
        machine: Machine = find_machine(CoreConfig.of(model_dir=folder, device="cpu", num_threads=1))
        self.follower = FollowerRank(self.models[1], machine, FakeGroup(1, sent), block_size=4)
        self.theirs = theirs

    def follow(self) -> None:
        """Answer one command."""
        self.follower.answer(receive_command(self.theirs))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(make_reference("qwen3", num_hidden_layers=1), tmp_path_factory.mktemp("model"))


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Pair(folder, ours, theirs)


CONTEXT = ForwardContext(
    positions=torch.tensor([6, 0, 1]),
    slot_mapping=torch.tensor([22, 8, 9]),
    query_starts=[0, 1, 3],
    context_lens=[7, 2],
    block_tables=torch.tensor([[1, 5], [2, 0]]),
    block_size=4,
)


def test_the_follower_computes_the_step_that_the_leader_computes(folder: Path) -> None:
    with pair(folder) as two:
        two.leader.open_pool(8)
        hidden = two.leader.forward(torch.tensor([3, 4, 5]), CONTEXT, [])
        two.leader.logits(hidden[:2] + 1)
        for _ in range(3):
            two.follow()

        assert two.models[0].calls == two.models[1].calls
        assert two.models[0].calls[0] == [[3, 4, 5], [6, 0, 1], [22, 8, 9], [[1, 5], [2, 0]]]


def test_after_a_failure_every_call_fails(folder: Path) -> None:
    with pair(folder) as two:
        two.models[0].fails = True
        with pytest.raises(RuntimeError, match="out of memory"):
            two.leader.forward(torch.tensor([3, 4, 5]), CONTEXT, [])
        two.models[0].fails = False
        with pytest.raises(RankGroupBrokenError, match="an earlier step failed"):
            two.leader.logits(torch.zeros(1, 48))


def test_a_follower_that_is_gone_breaks_the_group(folder: Path) -> None:
    with pair(folder) as two:
        two.theirs.close()
        with pytest.raises(RankGroupBrokenError, match="is gone"):
            two.leader.logits(torch.zeros(1, 48))


@pytest.mark.parametrize("command", [OpenPool(7), Forward([0, 1], [9], 3), Logits(2)])
def test_commands_arrive_as_they_were_sent_and_an_end_is_reported(command: Command) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            send_command(ours, command)
            assert receive_command(theirs) == command
        with pytest.raises(LeaderGoneError):
            receive_command(theirs)
