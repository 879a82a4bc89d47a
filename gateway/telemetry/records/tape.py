"""Tape: requests recorded for replay, in files of a bounded total size and age. Off unless the settings enable it."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.telemetry.logs.redaction import REDACTED, is_secret_name, redact
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome
from gateway.util.private_files import open_private, private_tree, replace_file
from routing_policies.policy.members import group_of
from routing_policies.replay import Ended, RecordedRequest

FLUSH_S: Final = 1.0
MAX_WAITING: Final = 20_000
"""Number of recorded requests not yet on disk; beyond it they are dropped and counted."""
SEGMENTS: Final = 8
"""Number of files that share the total size; the oldest is deleted when the rest is full."""
SALT_FILE: Final = "salt"
_SALT_BYTES: Final = 16
_SUFFIX: Final = ".jsonl"
_BYTES_PER_TOKEN: Final = 4

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RecordedRequest).decode
_ENDED: Final[dict[Outcome, Ended]] = {
    Outcome.COMPLETED: "answered",
    Outcome.CACHED: "answered",
    Outcome.SHED: "shed",
    Outcome.UPSTREAM_FAILED: "failed",
    Outcome.UPSTREAM_TIMEOUT: "failed",
    Outcome.FAILED: "failed",
}


class Tape:
    """Recording of one process; several processes may share a folder, each with files of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        holder: str,
        max_bytes: int,
        retention_s: float,
        keeps_text: bool,
        wall: Callable[[], float],
    ) -> None:
        """Create a closed recording.

        Args:
            folder: Folder of the recordings.
            holder: Name of this process, part of its file names.
            max_bytes: Total size of all files in the folder.
            retention_s: Age in seconds beyond which a file is deleted.
            keeps_text: True to record prompts, not only features.
            wall: Wall clock, in seconds since 1970.
        """
        self.folder = folder
        self.keeps_text = keeps_text
        self.num_dropped = 0
        self._holder = holder
        self._segment_bytes = max(max_bytes // SEGMENTS, 1)
        self._max_bytes = max_bytes
        self._retention_s = retention_s
        self._wall = wall
        self._waiting: list[RecordedRequest] = []
        self._segment: Path | None = None
        self._writing = threading.Lock()
        self.salt = b""

    def open(self) -> None:
        """Create the folder and its salt, which protects digests of short texts; raises OSError."""
        private_tree(self.folder)
        path = self.folder / SALT_FILE
        with suppress(FileExistsError), open_private(path, "xb") as stream:
            stream.write(secrets.token_bytes(_SALT_BYTES))
        self.salt = path.read_bytes()
        if len(self.salt) != _SALT_BYTES:  # damaged: a new salt, so earlier digests no longer match
            self.salt = secrets.token_bytes(_SALT_BYTES)
            replace_file(path, self.salt)

    def digest(self, value: str | None) -> str:
        """Return a keyed digest of the value, equal for equal values; empty for none."""
        return blake2b(value.encode(errors="surrogatepass"), digest_size=8, key=self.salt).hexdigest() if value else ""

    def note(self, record: RequestRecord) -> None:
        """Queue a finished request."""
        sample: dict[str, Any] | None = record.sample
        ended = None if record.outcome is None else _ENDED.get(record.outcome)
        if sample is None or ended is None:
            return  # not recorded, or without information: the client left, or the request was invalid
        if len(self._waiting) >= MAX_WAITING:
            self.num_dropped += 1
            return
        usage, first_at = record.usage, record.timeline.first_token_at
        ttft_ms = None if first_at is None else (first_at - record.timeline.started_at) * 1000
        self._waiting.append(
            RecordedRequest(
                at=self._wall(),
                tenant=record.tenant,
                model=record.model,
                lane=record.lane,
                route=record.route,
                deployment=group_of(record.deployment) if record.cache_reason != "shared" else "",
                cache="off" if record.cache_reason == "policy" else record.cache,
                ended=ended,
                prompt_tokens=sample["prompt_bytes"] // _BYTES_PER_TOKEN if usage is None else usage.prompt_tokens,
                output_tokens=0 if usage is None else usage.completion_tokens,
                ttft_ms=ttft_ms if ended == "answered" else None,
                policy=record.policy,
                stream=record.stream,
                **sample,
            )
        )

    async def run(self) -> None:
        """Write queued requests until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write queued requests; when the disk is full they are dropped and counted."""
        with self._writing:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._write(waiting)

    def _write(self, waiting: list[RecordedRequest]) -> None:
        try:
            with open_private(self._current(), "ab") as stream:
                stream.write(b"".join(_encode(_redacted(request)) + b"\n" for request in waiting))
            self._tidy()
        except OSError:
            self.num_dropped += len(waiting)

    def _current(self) -> Path:
        if self._segment is None or not self._segment.exists() or self._segment.stat().st_size >= self._segment_bytes:
            self._segment = self.folder / f"{int(self._wall() * 1000):015d}-{self._holder}{_SUFFIX}"
        return self._segment

    def _tidy(self) -> None:
        """Delete the files beyond the retention time, and the oldest beyond the total size."""
        num_bytes = 0
        for path in sorted(self.folder.glob(f"*{_SUFFIX}"), reverse=True):
            with suppress(FileNotFoundError):  # another process has deleted it
                found = path.stat()
                num_bytes += found.st_size
                if num_bytes > self._max_bytes or self._wall() - found.st_mtime > self._retention_s:
                    path.unlink()


def _redacted(request: RecordedRequest) -> RecordedRequest:
    """Return the request without the secrets in its free text."""
    if request.text is None and not request.headers:
        return request
    headers = {name: REDACTED if is_secret_name(name) else redact(value) for name, value in request.headers.items()}
    text = None if request.text is None else redact(request.text)
    return msgspec.structs.replace(request, headers=headers, text=text)


def has_recording(folder: Path) -> bool:
    """Return whether the folder holds any recording."""
    return any(folder.glob(f"*{_SUFFIX}"))


def read_tape(folder: Path, limit: int) -> list[RecordedRequest]:
    """Return up to `limit` of the newest recorded requests, oldest first; unreadable lines are skipped."""
    found: list[RecordedRequest] = []
    for path in sorted(folder.glob(f"*{_SUFFIX}"), reverse=True):
        found += reversed(list(_lines(path)))
        if len(found) >= limit:
            break
    return sorted(found[:limit], key=lambda request: request.at)


def _lines(path: Path) -> Iterator[RecordedRequest]:
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for line in stream:
            with suppress(msgspec.DecodeError):  # cut off by a crash, or written by another version
                yield _decode(line)
