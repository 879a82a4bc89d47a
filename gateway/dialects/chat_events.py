"""ChatEvents: the events of a chat completion's stream as values, for translation into another dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gateway.chat.json_faults import HIGH_AT_END
from gateway.completion.answer_json import as_written, document_of
from gateway.dialects.chat_spellings import in_usual_spelling
from gateway.errors import UpstreamFailed
from gateway.upstreams.http1.sse import SseDecoder, SseError

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
_DONE: Final = b"[DONE]"
_LOW_AT_BEGIN: Final = re.compile(rb'(?<!\\)"(\\u[dD][c-fC-F][0-9a-fA-F]{2})')
"""Second half of a pair at the beginning of a string."""


class CallFunction(msgspec.Struct, gc=False):
    """Piece of a tool call's function."""

    name: str | None = None
    arguments: str | None = None


class CallInput(msgspec.Struct, gc=False):
    """Piece of the call of a custom tool."""

    name: str | None = None
    input: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    """Piece of a tool call; pieces of one call share their index."""

    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None
    custom: CallInput | None = None


class DeltaPiece(msgspec.Struct, gc=False):
    """Piece of a message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    annotations: list[Any] | None = None
    output_items: list[dict[str, Any]] | None = None
    """Items of a Responses deployment that chat completions have no words for; an extension of ours."""
    content_blocks: list[dict[str, Any]] | None = None
    """Whole blocks of an Anthropic deployment that chat completions cannot express, such as signed reasoning."""
    function_call: CallFunction | None = None
    """Piece of a call in OpenAI's older spelling; it becomes a tool call whose id is the function's name."""

    def __post_init__(self) -> None:
        if self.function_call is not None and not self.tool_calls:
            self.tool_calls = [CallPiece(0, self.function_call.name, self.function_call)]


class ChoicePiece(msgspec.Struct, gc=False):
    """Piece of one choice."""

    index: int = 0
    delta: DeltaPiece | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    stop_reason: Any = None
    matched_stop: Any = None
    """Stop string that ended the choice, in the words of two servers."""
    native_finish_reason: Any = None


class ChatEvent(msgspec.Struct, gc=False):
    """One event of a stream; members that are not listed are ignored."""

    id: str | None = None
    model: str | None = None
    created: Any = None
    choices: list[ChoicePiece] | None = None
    usage: dict[str, Any] | None = None
    service_tier: Any = None
    error: Any = None
    penstock: Any = None
    container: Any = None
    context_management: Any = None
    stop_details: Any = None
    """Members of a message of Anthropic's API; chat completions have none like them."""


_decode: Final = msgspec.json.Decoder(ChatEvent, float_hook=as_written).decode


class ChatEvents:
    """Incremental reader of a stream: feed pieces, cut anywhere; get the events that they complete.

    Some servers cut a text between the halves of a surrogate pair. The event with the first half then waits for the
    next event, so that the character arrives whole.
    """

    __slots__ = ("_decoder", "_held", "is_done")

    def __init__(self) -> None:
        self._decoder: SseDecoder | None = None
        self._held = b""
        """Data of an event that waits for the other half of its last character."""
        self.is_done = False
        """True once `[DONE]` was read."""

    def feed(self, piece: bytes) -> list[ChatEvent]:
        """Return the events that the piece completes; comments and `[DONE]` are none.

        Raises:
            UpstreamFailed: An event is too large, or is no event of a chat completion.
        """
        if self._decoder is None and piece.startswith(_FIELD) and piece.endswith(_END):
            parts = piece[len(_FIELD) : -len(_END)].split(b"\n\ndata: ")
            if not any(b"\n" in part for part in parts):  # else a comment, a name or another line end
                return self._events_of(parts)
        return self._decoded(piece)

    def finish(self, piece: bytes) -> list[ChatEvent]:
        """Return the events of the last piece, one without its blank line included."""
        found = self.feed(piece)
        if self._decoder is not None:
            found += self._decoded(b"\n\n")
        return found + self._released()

    def _decoded(self, piece: bytes) -> list[ChatEvent]:
        """Read a piece by the grammar of event streams, and the following ones up to the end of an event."""
        decoder = self._decoder or SseDecoder(MAX_EVENT_BYTES)
        try:
            found = self._events_of(event.data for event in decoder.feed(piece))
        except SseError as error:
            raise UpstreamFailed(f"The upstream's answer cannot be read: {error}. Try again.") from None
        self._decoder = decoder if decoder.has_pending else None
        return found

    def _events_of(self, parts: Iterable[bytes]) -> list[ChatEvent]:
        found: list[ChatEvent] = []
        for data in parts:
            try:
                event = _decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found += self._odd_events(data)
                continue
            if self._held:
                found += self._released()
            found.append(event)
        return found

    def _odd_events(self, data: bytes) -> list[ChatEvent]:
        """Return the events of `[DONE]`, of another spelling, of NaN, or of half a character."""
        if data.strip() == _DONE:
            self.is_done = True
            return self._released()
        if self._held and (low := _LOW_AT_BEGIN.search(data)) is not None:
            place = HIGH_AT_END.search(self._held)
            assert place is not None, "only such events wait"
            self._held = self._held[: place.end(1)] + low[1] + self._held[place.end(1) :]
            data = data[: low.start(1)] + data[low.end(1) :]
        found = self._released()
        if HIGH_AT_END.search(data) is None:
            return [*found, _event(data)]
        self._held = data
        return found

    def _released(self) -> list[ChatEvent]:
        """Return the event that waits, if there is one."""
        held, self._held = self._held, b""
        return [_event(held)] if held else []


def _event(data: bytes) -> ChatEvent:
    """Return an event that has something unusual; raises UpstreamFailed if it is none of a chat completion."""
    document = in_usual_spelling(document_of(data))
    try:
        return msgspec.convert(document, ChatEvent)
    except msgspec.ValidationError as error:
        raise UpstreamFailed(f"An event of the upstream's answer is none of a chat completion: {error}.") from None
