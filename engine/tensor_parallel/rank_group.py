"""Follower processes of a tensor-parallel core: start, supervision and end."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from engine.config import CoreConfig, EngineConfigError, core_config_json
from engine.models.decoder import Model
from engine.models.families.registry import read_model_config
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.leader import LeaderModel
from engine.tensor_parallel.shard import Shard, part_of_config

logger = logging.getLogger(__name__)

_STOP_S = 5.0


class RankGroup:
    """Follower processes and their sockets, owned by the leader. Close it, or end the process."""

    def __init__(self, group: Group, processes: list[subprocess.Popen[bytes]], sockets: list[socket.socket]) -> None:
        self._group = group
        self._processes = processes
        self._sockets = sockets
        self._is_closing = False
        self.split = Shard(group)

    @classmethod
    def start(cls, config: CoreConfig, device: torch.device) -> RankGroup:
        """Start all ranks and wait until they have joined.

        Raises:
            EngineConfigError: The machine has too few GPUs.
            ModelConfigError: The model cannot be split into so many parts.
        """
        size = config.compute.tensor_parallel
        part_of_config(read_model_config(config.model_dir), size)
        if device.type == "cuda" and size > torch.cuda.device_count():
            raise EngineConfigError(
                f"tensor_parallel: {size} needs as many GPUs, this machine has {torch.cuda.device_count()}"
            )
        folder = Path(tempfile.mkdtemp(prefix="penstock-ranks-"))  # readable by this user only
        rendezvous = folder / "rendezvous"
        started = [_start_follower(config, rank, rendezvous) for rank in range(1, size)]
        try:
            group = Group.join(0, size, device, rendezvous)
        except BaseException:
            for process, sock in started:
                sock.close()
                process.kill()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return cls(group, [process for process, _ in started], [sock for _, sock in started])

    def lead(self, part: Model) -> LeaderModel:
        """Return the whole model for the leader."""
        return LeaderModel(part, self._group, self._sockets)

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Call `on_lost` from a thread when a process ends unexpectedly, because its part of the model is gone."""
        for rank, process in enumerate(self._processes, 1):
            threading.Thread(target=self._wait, args=(rank, process, on_lost), name=f"rank {rank}", daemon=True).start()

    def close(self) -> None:
        """End the other ranks and leave the group."""
        self._is_closing = True
        for sock in self._sockets:
            sock.close()
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._group.leave()

    def _wait(self, rank: int, process: subprocess.Popen[bytes], on_lost: Callable[[str], None]) -> None:
        status = process.wait()
        if not self._is_closing:
            on_lost(f"rank {rank} of the group ended with exit status {status}")


def end_core(reason: str) -> None:
    """End this process at once: its loop may block in a collective that can no longer complete."""
    logger.error("the core cannot go on: %s", reason)
    logging.shutdown()
    os._exit(1)


def _start_follower(config: CoreConfig, rank: int, rendezvous: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that receives commands through the returned socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        text = core_config_json(config)
        arguments = [
            "--fd",
            str(theirs.fileno()),
            "--rank",
            str(rank),
            "--rendezvous",
            str(rendezvous),
            "--config",
            text,
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.tensor_parallel", *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours
