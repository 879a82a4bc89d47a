"""Segments: lines in files of a bounded total size and age, written by one process into a folder that several share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.util.private_files import open_private

SEGMENTS: Final = 8
"""Number of files that share the total size; the oldest is deleted when the rest is full."""
SEGMENT_SUFFIX: Final = ".jsonl"


class Segments:
    """Files of one process; those of other processes in the folder count for the total size."""

    def __init__(
        self, folder: Path, *, holder: str, max_bytes: int, retention_s: float, wall: Callable[[], float]
    ) -> None:
        """Set up the files; nothing is written yet.

        Args:
            folder: Folder of the files.
            holder: Name of this process, part of its file names.
            max_bytes: Total size of all files in the folder.
            retention_s: Age in seconds beyond which a file is deleted.
            wall: Wall clock, in seconds since 1970.
        """
        self.folder = folder
        self._holder = holder
        self._segment_bytes = max(max_bytes // SEGMENTS, 1)
        self._max_bytes = max_bytes
        self._retention_s = retention_s
        self._wall = wall
        self._segment: Path | None = None

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, and delete what is too old or too much. Raises OSError."""
        with open_private(self._current(), "ab") as stream:
            stream.write(b"".join(line + b"\n" for line in lines))
        self._tidy()

    def _current(self) -> Path:
        if self._segment is None or not self._segment.exists() or self._segment.stat().st_size >= self._segment_bytes:
            self._segment = self.folder / f"{int(self._wall() * 1000):015d}-{self._holder}{SEGMENT_SUFFIX}"
        return self._segment

    def _tidy(self) -> None:
        """Delete the files beyond the retention time, and the oldest beyond the total size."""
        num_bytes = 0
        for path in newest_segments(self.folder):
            with suppress(FileNotFoundError):  # another process has deleted it
                found = path.stat()
                num_bytes += found.st_size
                if num_bytes > self._max_bytes or self._wall() - found.st_mtime > self._retention_s:
                    path.unlink()


def newest_segments(folder: Path) -> list[Path]:
    """Return the files of a folder, the newest first."""
    return sorted(folder.glob(f"*{SEGMENT_SUFFIX}"), reverse=True)
