"""ChatEvents: the events of a chat completion's stream as values, for translation into another dialect."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.completion.answer_json import as_written, document_of
from gateway.errors import UpstreamFailed
from gateway.upstreams.http1.sse import SseDecoder, SseError

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
_DONE: Final = b"[DONE]"


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
    """Incremental reader of a stream: feed pieces, cut anywhere; get the events that they complete."""

    __slots__ = ("_decoder", "is_done")

    def __init__(self) -> None:
        self._decoder: SseDecoder | None = None
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
                return [event for part in parts if (event := self._event(part)) is not None]
        return self._decoded(piece)

    def finish(self, piece: bytes) -> list[ChatEvent]:
        """Return the events of the last piece, one without its blank line included."""
        return self.feed(piece) + ([] if self._decoder is None else self._decoded(b"\n\n"))

    def _decoded(self, piece: bytes) -> list[ChatEvent]:
        """Read a piece by the grammar of event streams, and the following ones up to the end of an event."""
        decoder = self._decoder or SseDecoder(MAX_EVENT_BYTES)
        try:
            found = [self._event(event.data) for event in decoder.feed(piece)]
        except SseError as error:
            raise UpstreamFailed(f"The upstream's answer cannot be read: {error}. Try again.") from None
        self._decoder = decoder if decoder.has_pending else None
        return [event for event in found if event is not None]

    def _event(self, data: bytes) -> ChatEvent | None:
        if data.strip() == _DONE:
            self.is_done = True
            return None
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # another spelling of a known member, or NaN
        document = document_of(data)
        try:
            return msgspec.convert(document, ChatEvent)
        except msgspec.ValidationError as error:
            raise UpstreamFailed(f"An event of the upstream's answer is none of a chat completion: {error}.") from None
