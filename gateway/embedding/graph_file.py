"""GraphFile: a graph that was made once and is kept in a folder, under a name that tells its digest."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.util.private_files import open_private, private_folder


class GraphFile:
    """`stem` names what is inside. A file whose bytes are not those of its name is as good as none."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem

    def find(self) -> Path | None:
        """The graph, or None when there is none that is whole. Reads it through: tens of milliseconds."""
        for path in sorted(self._folder.glob(f"{self._stem}.*.onnx")):
            if _digest(path) == path.name.split(".")[-2]:
                return path
        return None

    def make(self, build: Callable[[], bytes]) -> Path:
        """The graph, made if there is none that is whole; of several processes one makes it. Raises OSError."""
        private_folder(self._folder)
        with self._lock():
            return self.find() or self._write(build())

    def _write(self, graph: bytes) -> Path:
        for damaged in self._folder.glob(f"{self._stem}.*.onnx*"):
            damaged.unlink()
        path = self._folder / f"{self._stem}.{hashlib.sha256(graph).hexdigest()}.onnx"
        part = path.with_suffix(".onnx-part")
        with open_private(part, "wb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        return path

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Held until the block ends, or the process."""
        with open_private(self._folder / f"{self._stem}.lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:  # damaged, and removed by the process that makes it anew
        return None
