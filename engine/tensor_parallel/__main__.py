"""Follower process of tensor parallelism, started by the leader: `python -m engine.tensor_parallel`."""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import socket
import threading
from pathlib import Path

import torch

from engine.config import CoreConfig, parse_config
from engine.models.loading.loader import load_model
from engine.process_end import end_without_cleanup
from engine.runner.machine import find_machine
from engine.tensor_parallel.commands import LeaderGoneError
from engine.tensor_parallel.follower import FollowerRank
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.shard import Shard

logger = logging.getLogger(__name__)


def main() -> int:
    """Serve the leader until it closes its socket; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine.tensor_parallel", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket that commands come through")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--rendezvous", type=Path, required=True, help="the file at which the group meets")
    parser.add_argument("--config", required=True, help="CoreConfig as JSON")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s rank {options.rank} %(levelname)s %(name)s: %(message)s"
    )
    # Ctrl-C reaches the whole process group; the end of the leader's socket ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=options.fd) as sock:
        _watch(sock)
        follower = _join(parse_config(options.config), options.rank, options.rendezvous)
        try:
            follower.serve(sock)
        except LeaderGoneError:
            logger.info("the leader is gone")
    return 0


def _join(config: CoreConfig, rank: int, rendezvous: Path) -> FollowerRank:
    if torch.cuda.is_available() and config.compute.device != "cpu":
        torch.cuda.set_device(rank)
    machine = find_machine(config)
    group = Group.join(rank, config.compute.tensor_parallel, machine.device, rendezvous)
    model = load_model(
        config.model_dir,
        dtype=machine.dtype,
        device=machine.device,
        backend=machine.backend,
        quantization=config.compute.quantization,
        split=Shard(group),
        max_model_len=config.batch.max_model_len,
    )
    return FollowerRank(model, machine, group, config.kv.block_size)


def _watch(sock: socket.socket) -> None:
    """End the process when the leader's socket closes, even while this process blocks in a collective."""

    def wait() -> None:
        # The poll reads nothing, because the follower reads its commands from the same socket.
        with socket.socket(fileno=os.dup(sock.fileno())) as watched:
            poll = select.poll()
            poll.register(watched, select.POLLRDHUP)
            poll.poll()
        os._exit(0)

    threading.Thread(target=wait, name="leader", daemon=True).start()


if __name__ == "__main__":
    end_without_cleanup(main())
