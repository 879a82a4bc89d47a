"""Segments: lines in files of a bounded total size and age, written by one process into a folder that several share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.util.private_files import open_private

SEGMENTS: Final = 8
"""Number of files that share the total size; the oldest is deleted when the rest is full."""
SEGMENT_SUFFIX: Final = ".jsonl"
TIDY_S: Final = 60.0
"""Seconds between two looks for old files while nothing is written."""


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
        self._began_ms = 0
        self._tidied_at = 0.0

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, and delete what is too old or too much; call it also when there are none. Raises OSError."""
        piece = bytearray()
        for line in lines:
            piece += line + b"\n"
            if len(piece) >= self._segment_bytes:
                self._append(piece)
                piece = bytearray()
        if piece:
            self._append(piece)
        if lines or not 0.0 <= self._wall() - self._tidied_at < TIDY_S:
            self._tidy()

    def _append(self, content: bytearray) -> None:
        """Append whole lines, or nothing: a line that is cut off would spoil the next one. Raises OSError."""
        with open_private(self._current(), "ab") as stream:
            descriptor = stream.fileno()
            size = os.fstat(descriptor).st_size
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(descriptor, left) :]
            except OSError:
                os.ftruncate(descriptor, size)
                raise

    def _current(self) -> Path:
        """Return the file to append to; a new one begins when the last is full, or old enough to go before long."""
        now_ms = int(self._wall() * 1000)
        is_old = now_ms - self._began_ms >= self._retention_s * 1000 / SEGMENTS
        if (
            self._segment is None
            or is_old
            or not self._segment.exists()
            or self._segment.stat().st_size >= self._segment_bytes
        ):
            self._began_ms = max(now_ms, self._began_ms + 1)
            self._segment = self.folder / f"{self._began_ms:015d}-{self._holder}{SEGMENT_SUFFIX}"
        return self._segment

    def _tidy(self) -> None:
        """Delete the files whose first line is beyond the retention time, and the oldest beyond the total size."""
        now = self._tidied_at = self._wall()
        num_bytes = 0
        for path in newest_segments(self.folder):
            with suppress(FileNotFoundError):  # another process has deleted it
                found = path.stat()
                num_bytes += found.st_size
                if num_bytes > self._max_bytes or now - _began_at(path, found) > self._retention_s:
                    path.unlink()


def delete_older(folder: Path, begin: float) -> None:
    """Delete the files of a folder whose first line is older than `begin`, in seconds since 1970. Raises OSError."""
    for path in newest_segments(folder):
        with suppress(FileNotFoundError):  # another process has deleted it
            if _began_at(path, path.stat()) < begin:
                path.unlink()


def _began_at(path: Path, found: os.stat_result) -> float:
    """Return the seconds since 1970 at which a file began, as its name states them; else those of its last change."""
    begin = path.name.partition("-")[0]
    return int(begin) / 1000 if begin.isascii() and begin.isdigit() else found.st_mtime


def newest_segments(folder: Path) -> list[Path]:
    """Return the files of a folder, the newest first."""
    return sorted(folder.glob(f"*{SEGMENT_SUFFIX}"), reverse=True)
