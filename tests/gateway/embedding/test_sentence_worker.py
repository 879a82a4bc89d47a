"""The worker's replies: one line for each request, and the vectors behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from gateway.embedding.sentence_worker import WorkerReply


def test_a_folder_without_a_model_is_an_error_in_one_line(tmp_path: Path) -> None:
    worker = [sys.executable, "-m", "gateway.embedding.sentence_worker", str(tmp_path)]
    done = subprocess.run(worker, input=b"", capture_output=True, timeout=120, check=False)
    (line,) = done.stdout.splitlines()
    reply = msgspec.json.decode(line, type=WorkerReply)
    assert done.returncode == 1
    assert reply.error
    assert reply.dimensions == 0
