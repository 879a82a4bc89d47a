"""The log: JSON lines, written by a thread of its own, so a slow disk or a blocked pipe never delays a request.

Lines are encoded in batches. Encoding one line after a request's other work costs three times as much, because the
processor's caches have lost the encoder. The caller encodes once ROW entries wait; the thread encodes the rest when it
writes. If the thread encoded all of them, it would hold the interpreter for milliseconds and delay requests.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, BinaryIO, Final, Literal, Protocol

import msgspec

from gateway.telemetry.logs.redaction import REDACTED, is_secret_name, redact

DEFAULT_CAPACITY: Final = 20_000
FLUSH_INTERVAL_S: Final = 0.1
ROW: Final = 16
"""Number of lines encoded at a time, which takes about a tenth of a millisecond."""
MAX_TEXT_CHARS: Final = 2_000

_MARGIN_CHARS: Final = 1_000
"""Characters searched beyond those stored, so a secret is recognised even where it is cut."""
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

OWN_KEYS: Final = frozenset({"at", "level", "event"})
"""Keys of every line about the process; a field of such a name gets an underscore appended."""

Entry = dict[str, Any]
Level = Literal["debug", "info", "warning", "error"]

_RANK: Final[dict[Level, int]] = {"debug": 0, "info": 1, "warning": 2, "error": 3}


class Loggable(Protocol):
    """Object that produces its own log line shortly after it was queued; it must not change after that."""

    def as_line(self, at: float) -> msgspec.Struct:
        """Return the line's keys and values, with `at` in wall-clock seconds and free text already through `clean`."""
        ...


def clean(text: str) -> str:
    """Return `text` shortened, with secrets redacted and control characters and lone surrogates escaped.

    Tab and line feed stay; JSON escapes them.
    """
    return _escaped(redact(text[: MAX_TEXT_CHARS + _MARGIN_CHARS], stop=MAX_TEXT_CHARS))


def clean_end(text: str) -> str:
    """Return the last part of `text`, cleaned as by `clean`."""
    window = text[-(MAX_TEXT_CHARS + _MARGIN_CHARS) :]
    return _escaped(redact(window, max(len(window) - MAX_TEXT_CHARS, 0)))


def clean_value(value: Any) -> Any:
    """Return a value with all text inside it cleaned; types that JSON lacks become text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _clean_field(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean_value(item) for item in value]
    return value


def _clean_field(name: str, value: Any) -> Any:
    return REDACTED if isinstance(value, (str, bytes)) and is_secret_name(name) else clean_value(value)


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def _as_text(value: object) -> str:
    return clean(str(value))


class LogWriter:
    """Bounded queue and the thread that empties it; entries beyond its capacity are dropped and counted."""

    def __init__(
        self,
        stream: BinaryIO,
        *,
        level: Level = "info",
        capacity: int = DEFAULT_CAPACITY,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.num_dropped = 0
        self._stream = stream
        self._least = _RANK[level]
        self._capacity = capacity
        self._wall_clock = wall_clock
        self._fresh: deque[tuple[Loggable | Entry, float]] = deque()
        self._made: deque[bytes] = deque()
        self._making = threading.Lock()
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
        self._encode = msgspec.json.Encoder(enc_hook=_as_text).encode

    def start(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def write(self, entry: Loggable | Entry, level: Level = "info") -> None:
        """Queue one line unless it is below the log's level; never blocks and never raises."""
        if _RANK[level] < self._least:
            return
        if len(self._made) + len(self._fresh) >= self._capacity:
            self.num_dropped += 1
            return
        self._fresh.append((entry, self._wall_clock()))
        if len(self._fresh) >= ROW and self._making.acquire(blocking=False):  # otherwise the thread is encoding them
            try:
                self._make()
            finally:
                self._making.release()

    def event(self, name: str, /, *, level: Level = "info", **values: Any) -> None:
        """Queue a line about the process rather than about a request."""
        self.write({"level": level, "event": name, **_beside(OWN_KEYS, values)}, level)

    def failure(self, name: str, error: BaseException, /, **values: Any) -> None:
        """Queue a line about an internal error, with its traceback; the exception itself is not retained."""
        text = clean_end("".join(traceback.format_exception(error)))
        fields = _beside(OWN_KEYS | {"error"}, values)
        self.write({"level": "error", "event": name, "error": text, **fields}, "error")

    def close(self, timeout_s: float = 2.0) -> None:
        """Write the queued lines and stop; gives up after `timeout_s` when the stream is blocked."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def flush(self) -> None:
        """Write the queued lines on the calling thread."""
        with self._writing:
            self._flush()

    def _run(self) -> None:
        while not self._stopping.wait(FLUSH_INTERVAL_S):
            self.flush()
        self.flush()

    def _make(self) -> None:
        """Encode the waiting entries in order; the caller holds the lock `_making`."""
        for _ in range(len(self._fresh)):
            self._made.append(self._line(*self._fresh.popleft()))

    def _flush(self) -> None:
        with self._making:
            self._make()
        lines = []
        while self._made:
            lines.append(self._made.popleft())
        if not lines:
            return
        try:
            self._stream.write(b"".join(lines))
            self._stream.flush()
        except (OSError, ValueError):  # disk full, pipe or stream closed: the gateway serves without a log
            self.num_dropped += len(lines)

    def _line(self, entry: Loggable | Entry, at: float) -> bytes:
        at = round(at, 6)
        if not isinstance(entry, dict):
            return self._encode(entry.as_line(at)) + b"\n"
        return self._encode({"at": at, **clean_value(_beside({"at"}, entry))}) + b"\n"


def _beside(taken: AbstractSet[str], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with an underscore appended to names that are taken; usually the mapping passed in."""
    if taken.isdisjoint(values):
        return values
    return {f"{key}_" if key in taken else key: value for key, value in values.items()}
