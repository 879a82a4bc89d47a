"""AnswerLog: recorded answers with their requests, for `penstock replay`. Off unless the settings enable it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from gateway.telemetry.records.answer_record import AnswerRecord, AnswerRecording
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.segments import Segments, newest_segments
from gateway.util.private_files import private_tree

FLUSH_S: Final = 1.0
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""Bytes of texts that are not on disk yet; beyond them answers are dropped and counted."""

AnswerEnd = Literal["recorded", "left_out", "dropped"]
"""`left_out`: no whole answer, or a text that is too long. `dropped`: the disk is full, or too slow."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(AnswerRecord).decode
_NO_RECORD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AnswerLog:
    """Answers that one process records; several processes may share a folder, each with files of its own."""

    def __init__(self, segments: Segments, wall: Callable[[], float], count: Callable[[AnswerEnd, int], None]) -> None:
        """Create a closed log; `wall` returns seconds since 1970, and `count` takes the ends of answers."""
        self.folder = segments.folder
        self._count = count
        self._segments = segments
        self._wall = wall
        self._waiting: list[tuple[AnswerRecording, RequestRecord, float]] = []
        self._num_bytes = 0
        self._queueing = threading.Lock()
        """Held for moments: the event loop queues while a thread takes what waits."""
        self._writing = threading.Lock()

    def open(self) -> None:
        """Create the folder; raises OSError."""
        private_tree(self.folder)

    def note(self, draft: AnswerRecording, record: RequestRecord) -> None:
        """Queue the answer of a finished request."""
        num_bytes = draft.num_bytes
        with self._queueing:
            has_room = self._num_bytes + num_bytes <= MAX_WAITING_BYTES
            if has_room:
                self._num_bytes += num_bytes
                self._waiting.append((draft, record, self._wall()))
        if not has_room:
            self._count("dropped", 1)

    async def run(self) -> None:
        """Write queued answers until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write queued answers, and delete what is too old; when the disk is full answers are dropped and counted."""
        with self._writing:
            with self._queueing:
                waiting, self._waiting, self._num_bytes = self._waiting, [], 0
            made = [found for draft, record, at in waiting if (found := draft.record(record, at)) is not None]
            self._count("left_out", len(waiting) - len(made))
            try:
                self._segments.write([_encode(one) for one in made])
                self._count("recorded", len(made))
            except OSError:
                self._count("dropped", len(made))


def find_answer(folder: Path, request_id: str) -> AnswerRecord | None:
    """Return the record of a request in a folder of recorded answers, or in one of its files; None without one.

    Reads files from the newest on; only lines that begin with the id are decoded.
    """
    begin = b'{"id":' + _encode(request_id.encode(errors="replace").decode()) + b","
    for path in newest_segments(folder) if folder.is_dir() else [folder]:
        with suppress(FileNotFoundError), path.open("rb") as stream:  # another process may have deleted it
            for line in stream:
                if line.startswith(begin):
                    with suppress(*_NO_RECORD):  # cut off by a crash, written by another version, or no record
                        return _decode(line)
    return None
