"""SentenceEncoder: any sentence-transformers model, or a function of a package, in a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.embedding.encoder import TextEncoder
from gateway.embedding.model_files import EncoderUnavailable
from gateway.embedding.sentence_worker import WorkerReply, is_function

LOAD_S: Final = 300.0
"""Longest time for a model to load, in seconds."""
ENCODE_S: Final = 60.0
"""Longest time for one batch, in seconds."""
_STOP_S: Final = 5.0
_MAX_LINE_BYTES: Final = 65_536
_WORKER: Final = "gateway.embedding.sentence_worker"
_WEIGHTS: Final = ("*.safetensors", "*.bin", "onnx/*.onnx", "*.onnx")

_replies: Final = msgspec.json.Decoder(WorkerReply)


_THREADS: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of OpenMP sleep while they wait: on a busy machine, threads that spin take the time that the others need."""


class SentenceEncoder:
    """Encoder in a worker process, for one thread at a time; a process that has died is started anew."""

    def __init__(self, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an encoder without a process; `model` is a folder, `module:function`, or a name for the library."""
        self._model = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""
        self._dimensions = 0
        self.backend = ""
        """What computes: `onnx`, `torch` or `function`; empty before it is loaded."""
        self.reason = ""
        """Why a graph of the folder is not used; empty where it is, or there is none."""

    @property
    def id(self) -> str:
        """Name of the model, with a digest of a folder's weights, or the version of a function's package."""
        return _id_of(self._model)

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    async def load(self, thread: Executor) -> TextEncoder:
        """Return the encoder with its process running, started in `thread`; raises EncoderUnavailable."""
        await asyncio.get_running_loop().run_in_executor(thread, self._start)
        return self

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return `[len(texts), dimensions]`. Raises EncoderUnavailable when the process fails or takes too long."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        whole = [text.encode(errors="replace").decode() for text in texts]
        try:
            return self._exchange(whole)
        except OSError as error:
            self.close()
            raise EncoderUnavailable(f"{self._model}: its process failed: {error}") from error

    def close(self) -> None:
        """End the process. Idempotent."""
        process, self._process, self._read = self._process, None, b""
        if process is None:
            return
        with contextlib.suppress(OSError):  # it may be gone, with a request in the pipe
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> None:
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER, self._model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=_THREADS | os.environ,
        )
        try:
            reply = self._reply(LOAD_S)
        except OSError as error:
            self.close()
            raise EncoderUnavailable(f"{self._model}: {error}") from error
        if reply.error is not None or not reply.dimensions:
            self.close()
            raise EncoderUnavailable(f"{self._model}: {reply.error or 'no vectors'}")
        self._dimensions, self.backend, self.reason = reply.dimensions, reply.backend, reply.reason

    def _exchange(self, texts: list[str]) -> NDArray[np.float32]:
        assert self._process is not None, "started"
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(msgspec.json.encode(texts) + b"\n")
        reply = self._reply(ENCODE_S)
        if reply.error is not None:
            raise EncoderUnavailable(f"{self._model}: {reply.error}")
        if reply.num_texts != len(texts) or reply.dimensions != self._dimensions:
            raise OSError(f"{reply.num_texts} vectors for {len(texts)} texts")
        data = self._take(4 * len(texts) * self._dimensions, self._clock() + ENCODE_S)
        return np.frombuffer(data, np.float32).reshape(len(texts), self._dimensions)

    def _reply(self, timeout_s: float) -> WorkerReply:
        until = self._clock() + timeout_s
        while b"\n" not in self._read:
            if len(self._read) > _MAX_LINE_BYTES:
                raise OSError("not a reply")
            self._receive(until)
        line, _, self._read = self._read.partition(b"\n")
        try:
            return _replies.decode(line)
        except msgspec.DecodeError as error:
            raise OSError(f"not a reply: {error}") from error

    def _take(self, count: int, until: float) -> bytes:
        while len(self._read) < count:
            self._receive(until)
        data, self._read = self._read[:count], self._read[count:]
        return data

    def _receive(self, until: float) -> None:
        """Read what the process has written; raises OSError at the end of its output or of the time."""
        assert self._process is not None, "started"
        assert self._process.stdout is not None, "a pipe"
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - self._clock()))
        if not ready:
            self._process.kill()
            raise OSError("no reply in time")
        data = os.read(self._process.stdout.fileno(), 1 << 20)
        if not data:
            raise OSError("it has ended")
        self._read += data


def _id_of(model: str) -> str:
    if is_function(model):
        return f"function:{model}{_version_of(model)}"
    folder = Path(model)
    if not folder.is_dir():
        return f"sentence-transformers:{model}"
    files = sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)})
    state = [f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in files]
    digest = blake2b("\n".join((str(folder.resolve()), *state)).encode(), digest_size=6).hexdigest()
    return f"sentence-transformers:{folder.resolve().name.lower()}-{digest}"


def _version_of(function: str) -> str:
    """Return the version of a function's package, whose other versions may make other vectors; empty without one."""
    try:
        return f"-{version(re.split('[.:]', function)[0])}"
    except PackageNotFoundError:
        return ""
