"""The core over a real socket: once as a real process, else in a thread of this one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.core.process import leave_cores_alone, run_core
from engine.protocol import (
    Abort,
    Add,
    Compiling,
    Fatal,
    FrameSplitter,
    Phase,
    Ready,
    SamplingParams,
    SeqOutput,
    Shutdown,
    StepReport,
    ToCore,
    ToFront,
    decode_to_front,
    encode_frame,
)
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE, transformers_greedy

pytestmark = pytest.mark.e2e
_TIMEOUT_S = 60.0


class Front:
    """The front's end, one frame at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._splitter = FrameSplitter()
        self._frames: list[ToFront] = []

    def send(self, message: ToCore) -> None:
        self._sock.sendall(encode_frame(message))

    def receive(self) -> ToFront:
        while not self._frames:
            data = self._sock.recv(1 << 16)
            assert data, "the core closed the connection"
            self._frames += [decode_to_front(body) for body in self._splitter.feed(data)]
        return self._frames.pop(0)

    def wait_until_ready(self) -> tuple[list[Phase], Ready]:
        phases: list[Phase] = []
        while True:
            message = self.receive()
            if isinstance(message, Ready):
                return phases, message
            assert isinstance(message, Phase | Compiling), message
            if isinstance(message, Phase):
                phases.append(message)

    def receive_after_progress(self) -> ToFront:
        """The next frame that is neither the end of a phase nor a compilation."""
        while isinstance(message := self.receive(), Phase | Compiling):
            pass
        return message

    def step(self) -> StepReport:
        message = self.receive_after_progress()
        assert isinstance(message, StepReport), message
        return message

    def ends(self, *seq_ids: int) -> tuple[dict[int, list[int]], dict[int, SeqOutput]]:
        """Tokens and ends of these sequences, once all have ended."""
        texts: dict[int, list[int]] = {seq_id: [] for seq_id in seq_ids}
        ends: dict[int, SeqOutput] = {}
        while len(ends) < len(seq_ids):
            for output in self.step().outputs:
                texts[output.seq_id] += output.token_ids
                if output.finish_reason is not None:
                    ends[output.seq_id] = output
        return texts, ends

    def close(self) -> None:
        self._sock.close()


@contextmanager
def core_process(
    tmp_path: Path, environment: Mapping[str, str] | None = None, **config: Any
) -> Iterator[tuple[Front, subprocess.Popen[bytes]]]:
    """`python -m engine.core`, connected; its log is `core.log`."""
    path = tmp_path / "core.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(_TIMEOUT_S)
        command = [sys.executable, "-m", "engine.core", "--socket", str(path), "--config", json.dumps(config)]
        with (tmp_path / "core.log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, env={**os.environ, **(environment or {})})
        try:
            sock, _ = listener.accept()
            sock.settimeout(_TIMEOUT_S)
            with sock:
                yield Front(sock), process
        finally:
            process.kill()
            process.wait()


@contextmanager
def core_thread(**config: Any) -> Iterator[tuple[Front, Future[int]]]:
    """The same core in a thread; its exit status."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_TIMEOUT_S)
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        yield Front(ours), pool.submit(run_core, theirs, json.dumps(config), time.monotonic)


def greedy_add(seq_id: int, prompt: list[int], max_tokens: int) -> Add:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    return Add(seq_id=seq_id, prompt_token_ids=prompt, params=params)


def test_a_core_starts_serves_aborts_and_stops(tmp_path: Path, checkpoint: Path) -> None:
    config: dict[str, Any] = {"model_dir": str(checkpoint), "device": "cpu", "num_threads": 1, "num_blocks": 64}
    config["max_num_seqs"] = 4
    with core_process(tmp_path, **config) as (front, process):
        phases, ready = front.wait_until_ready()
        assert [phase.name for phase in phases] == ["import", "weights", "kv_pool", "warm_up"]
        assert (ready.max_model_len, ready.vocab_size) == (MAX_MODEL_LEN, VOCAB_SIZE)
        assert (ready.num_blocks, ready.device, ready.dtype, ready.model_type) == (64, "cpu", "float32", "qwen3")

        prompt = [3, 14, 15, 92, 65, 35] * 7
        for seq_id in (1, 2):
            front.send(greedy_add(seq_id, prompt, 12))
        texts, ends = front.ends(1, 2)
        assert texts[1] == texts[2] == transformers_greedy(checkpoint, prompt, 12)
        stages = ends[2].stages
        assert stages is not None
        assert stages.num_cached_tokens == 32

        front.send(greedy_add(3, [5], 200))
        while not any(output.seq_id == 3 for output in front.step().outputs):
            pass
        front.send(Abort(seq_ids=[3]))
        while not (report := front.step()).freed:
            pass
        ((seq_id, state, seconds),) = report.freed
        assert (seq_id, state) == (3, "decode")
        assert seconds < 5.0
        assert report.load.num_blocks_free == 64
        assert report.load.num_blocks_leaked == 0

        front.send(Shutdown())
        assert process.wait(_TIMEOUT_S) == 0


def test_a_core_ends_when_the_front_goes_away(checkpoint: Path) -> None:
    config = {"model_dir": str(checkpoint), "device": "cpu", "num_threads": 1, "num_blocks": 64}
    with core_thread(**config) as (front, status):
        front.wait_until_ready()
        front.send(greedy_add(1, [5], 100))
        front.close()
        assert status.result(_TIMEOUT_S) == 0


def test_a_core_without_a_model_gives_the_reason_and_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with core_thread(model_dir=str(tmp_path / "nothing"), device="cpu", num_threads=1) as (front, status):
        assert isinstance(front.receive(), Phase)
        message = front.receive()
        assert isinstance(message, Fatal)
        assert "config.json" in message.message
        assert message.is_settings
        assert status.result(_TIMEOUT_S) == 1
    # The front prints the reason; a traceback would hide it.
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"block_size": 0}, "block_size"), ({"blok_size": 16}, "blok_size"), ({"device": "tpu"}, "device")],
)
def test_a_wrong_setting_is_fatal_and_named(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with core_thread(model_dir=str(tmp_path), **settings) as (front, status):
        message = front.receive()
        assert isinstance(message, Fatal)
        assert named in message.message
        assert status.result(_TIMEOUT_S) == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_torchs_threads_sleep_soon_unless_somebody_stated_otherwise(
    environment: dict[str, str], expected: str | None
) -> None:
    leave_cores_alone(environment)
    assert environment.get("GOMP_SPINCOUNT") == expected


def test_the_process_is_set_up_before_torch_is_imported() -> None:
    program = "import sys, engine.core.process; print(sorted({'torch', 'numba'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_vocabulary_that_is_only_declared_ends_the_core_before_memory_is_taken_for_it(
    tmp_path: Path, checkpoint: Path
) -> None:
    folder = tmp_path / "claims"
    shutil.copytree(checkpoint, folder)
    original = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**original, "vocab_size": 2**31 - 1}))
    with core_process(tmp_path, model_dir=str(folder), device="cpu", num_threads=1) as (front, process):
        message = front.receive()
        assert isinstance(message, Phase), message
        fatal = front.receive()
        assert isinstance(fatal, Fatal), fatal
        assert fatal.is_settings
        assert "model.embed_tokens.weight: expected shape" in fatal.message
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 1
        # In KiB. A process that is forked counts its parent's memory too; torch takes half of the rest.
        assert used.ru_maxrss < 2 * 1024 * 1024 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
