"""A whole core over two processes, its steps overlapped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Fatal, Shutdown
from tests.engine.core.checkpoints import transformers_greedy, write_checkpoint
from tests.engine.core.test_process import core_process, core_thread, greedy_add

pytestmark = pytest.mark.e2e
_TIMEOUT_S = 60.0
_PROMPT = [3, 14, 15, 92, 65, 35] * 7


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    write_checkpoint(folder)
    return folder


def command_of(pid: str) -> bytes:
    """A process's command line; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_core_of_two_processes_serves_and_leaves_none_behind(tmp_path: Path, checkpoint: Path) -> None:
    config: dict[str, Any] = {
        "model_dir": str(checkpoint),
        "device": "cpu",
        "num_threads": 2,
        "num_blocks": 64,
        "max_num_seqs": 4,
    }
    with core_process(tmp_path, **config, tensor_parallel=2, overlap="on") as (front, process):
        front.wait_until_ready()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (follower,) = [Path(f"/proc/{pid}") for pid in children if b"engine.tensor_parallel" in command_of(pid)]
        for seq_id in (1, 2):
            front.send(greedy_add(seq_id, _PROMPT, 12))

        texts, _ = front.ends(1, 2)

        assert texts[1] == texts[2] == transformers_greedy(checkpoint, _PROMPT, 12)
        front.send(Shutdown())
        assert process.wait(_TIMEOUT_S) == 0
        deadline_at = time.monotonic() + _TIMEOUT_S
        while b"engine.tensor_parallel" in command_of(follower.name):
            assert time.monotonic() < deadline_at, "the follower outlived its leader"
            time.sleep(0.02)


def test_a_model_that_cannot_be_split_is_fatal_and_named(checkpoint: Path) -> None:
    with core_thread(model_dir=str(checkpoint), device="cpu", num_threads=1, tensor_parallel=3) as (front, status):
        message = front.receive_after_progress()
        assert isinstance(message, Fatal)
        assert "3 does not divide num_attention_heads 4" in message.message
        assert status.result(_TIMEOUT_S) == 1
