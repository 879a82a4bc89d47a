"""GraphFile: a graph that is built once and stored in a folder, with its digest in the file name."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.util.private_files import open_private, private_folder, replace_file


class GraphFile:
    """File of the graph named `stem`; one whose bytes do not match its name counts as absent."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem

    def find(self) -> Path | None:
        """Return the path of an intact graph, or None; reads the whole file, which takes tens of milliseconds."""
        for path in sorted(self._folder.glob(f"{self._stem}.*.onnx")):
            if _digest(path) == path.name.split(".")[-2]:
                return path
        return None

    def make(self, build: Callable[[], bytes]) -> Path:
        """Return the path of the graph, built by one process unless an intact one exists; raises OSError."""
        private_folder(self._folder)
        with self._lock():
            return self.find() or self._write(build())

    def _write(self, graph: bytes) -> Path:
        for damaged in self._folder.glob(f"{self._stem}.*.onnx*"):
            damaged.unlink()
        path = self._folder / f"{self._stem}.{hashlib.sha256(graph).hexdigest()}.onnx"
        replace_file(path, graph)
        return path

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the file lock until the block or the process ends."""
        with open_private(self._folder / f"{self._stem}.lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:  # damaged, and removed by the process that makes it again
        return None
