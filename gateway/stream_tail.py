"""What a finished answer says about itself: usage, finish reason, error. Parsed after the fact, from a bounded copy."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.telemetry.record import Usage

TAIL_BYTES: Final = 16 * 1024
"""How much of a stream's end is kept; the last events of a chat stream are far smaller."""

_FINISH: Final = re.compile(rb'"finish_reason"\s*:\s*"')
_FIRST_TOKEN: Final = re.compile(
    rb'"(?:content|reasoning_content|reasoning|refusal)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[|"text"\s*:\s*"[^"]'
)
_ERROR_EVENT: Final = re.compile(rb'(?:^|\n)(?:event: *error\r?\n)?data: ?\{"error"')
_DONE: Final = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")


_NumTokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
"""A figure beyond it is none: quotas, prices and forecasts would be spoilt by it for hours."""


class _TokenDetails(msgspec.Struct, frozen=True):
    cached_tokens: _NumTokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _NumTokens
    completion_tokens: _NumTokens = 0
    prompt_tokens_details: _TokenDetails | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def has_first_token(piece: bytes) -> bool:
    """Whether `piece` carries text or a tool call; a role-only delta and a comment do not count."""
    return _FIRST_TOKEN.search(piece) is not None


def usage_of(answer: bytes) -> Usage | None:
    """The usage block of one JSON answer or event, None when there is none or it is not what it should be."""
    try:
        usage = _decode_answer(answer).usage
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    return Usage(usage.prompt_tokens, usage.completion_tokens, None if details is None else details.cached_tokens)


class StreamTail:
    """The last bytes of a stream and what they show. Feed every piece; read the properties after the end."""

    __slots__ = ("_num_bytes", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._num_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Keep `piece`, forgetting what is older than about TAIL_BYTES."""
        self._pieces.append(piece)
        self._num_bytes += len(piece)
        if self._num_bytes > 2 * TAIL_BYTES:
            self._pieces = [b"".join(self._pieces)[-TAIL_BYTES:]]
            self._num_bytes = TAIL_BYTES

    def summary(self) -> TailSummary:
        """What the stream's end says."""
        return TailSummary(b"".join(self._pieces))


class TailSummary:
    """How a stream ended."""

    __slots__ = ("has_done", "has_error", "has_finish", "usage")

    def __init__(self, tail: bytes) -> None:
        self.has_done = _DONE.search(tail, max(len(tail) - 64, 0)) is not None
        """The `[DONE]` marker came last."""
        self.has_error = b'{"error"' in tail and _ERROR_EVENT.search(tail) is not None
        """The upstream itself reported a failure inside the stream; some say `[DONE]` after it."""
        self.has_finish = _FINISH.search(tail) is not None
        self.usage = _last_usage(tail)

    @property
    def is_complete(self) -> bool:
        """The answer was whole: it said why it ended, or that it was done."""
        return (self.has_done or self.has_finish) and not self.has_error


def _last_usage(tail: bytes) -> Usage | None:
    if b'"usage"' not in tail:
        return None
    for line in reversed(tail.splitlines()):
        if line.startswith(b"data:") and b'"usage"' in line:
            usage = usage_of(line[5:])
            if usage is not None:
                return usage
    return None


def merge_timing(answer: bytes, timing: dict[str, float]) -> bytes:
    """`answer` (a JSON object) with the gateway's stages added under `penstock.timing.gateway`, else unchanged."""
    try:
        document: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer
    if not isinstance(document, dict):
        return answer
    extension = document.get("penstock")
    extension = dict(extension) if isinstance(extension, dict) else {}
    stages = extension.get("timing")
    extension["timing"] = {**(stages if isinstance(stages, dict) else {}), "gateway": timing}
    document["penstock"] = extension
    return msgspec.json.encode(document)
