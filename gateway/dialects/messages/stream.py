"""MessageStream: the events of a chat completion as those of a message, event by event.

message_start
content_block_start   content_block_delta …   content_block_stop      for each block, one after another
message_delta           the stop reason and the usage
message_stop
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.dialects.call_pieces import CallPieces, are_whole_arguments, call_name, call_text
from gateway.dialects.chat_events import CallPiece, ChatEvent, ChatEvents, ChoicePiece, DeltaPiece
from gateway.dialects.messages.answer import MESSAGE_MEMBERS, message_head
from gateway.dialects.messages.errors import error_event_of
from gateway.dialects.messages.native_blocks import OWN_SIGNATURE, Block, kind_of
from gateway.dialects.messages.stop_reasons import stop_reason_of
from gateway.dialects.messages.usage import NO_USAGE, message_usage
from gateway.errors import UpstreamFailed

_text_of: Final = msgspec.json.Encoder().encode
_TEXT: Final = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%b}}\n\n'
)
_REASONING: Final = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"thinking_delta","thinking":%b}}\n\n'
)
_ARGUMENTS: Final = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%b}}\n\n'
)
_STOP: Final = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_MESSAGE_STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_COMMENT: Final = b": keep-alive\n\n"
_COMMENTED: Final = (b":", b"\n:")


class MessageStream:
    """Translator of one stream: `feed` its pieces, cut anywhere; `finish` with the last one.

    Pieces of a chat completion's calls may alternate; the blocks of a message follow each other. A call that begins
    while the open one's arguments are not whole waits until the end of the stream, and so do all after it.
    """

    __slots__ = (
        *("_arguments", "_begun", "_call", "_calls", "_events", "_extra", "_finish", "_has_call", "_has_refusal"),
        *("_index", "_is_over", "_is_started", "_kind", "_matched", "_native", "_out", "_shows_reasoning", "_usage"),
        "_waiting",
    )

    def __init__(self, *, shows_reasoning: bool) -> None:
        """Create a translator; `shows_reasoning` is true if the client wants the model's reasoning."""
        self._events = ChatEvents()
        self._shows_reasoning = shows_reasoning
        self._out: list[bytes] = []
        self._is_started = False
        self._is_over = False
        """True once the end, or an error, was written."""
        self._index = -1
        """Place of the last block."""
        self._kind = ""
        """Kind of the open block; empty if none is open."""
        self._calls = CallPieces()
        self._call: int | None = None
        """Place among the tool calls of the one that is open; None if none is open."""
        self._arguments: list[str] = []
        """Arguments of that call so far."""
        self._begun: set[int] = set()
        """Places of the calls whose blocks have begun."""
        self._waiting: dict[int, tuple[CallPiece, list[str]]] = {}
        """First pieces and arguments of the calls that wait for the end."""
        self._finish: str | None = None
        self._native: Any = None
        self._matched: Any = None
        self._has_call = self._has_refusal = False
        self._usage: dict[str, Any] | None = None
        self._extra: dict[str, Any] = {}

    def feed(self, piece: bytes) -> bytes:
        """Translate a piece of the stream; raises UpstreamFailed if it is none of a chat completion's."""
        for event in self._events.feed(piece):
            self._take(event)
        if self._events.is_done:
            self._end()
        if not self._out:
            return _COMMENT if piece.startswith(_COMMENTED) and not self._is_over else b""
        found = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return found

    def finish(self, piece: bytes) -> bytes:
        """Translate the last piece, and end the message unless it failed; raises UpstreamFailed."""
        for event in self._events.finish(piece):
            self._take(event)
        if self._finish is not None or self._events.is_done:
            self._end()
        found = b"".join(self._out)
        self._out.clear()
        return found

    def _take(self, event: ChatEvent) -> None:
        if self._is_over:
            return
        if event.error:
            self._is_over = True
            self._out.append(error_event_of(event.error))
            return
        if event.usage is not None:
            self._usage = event.usage
        if not self._is_started:
            self._start(event)
        for choice in event.choices or ():
            if choice.index == 0:
                self._take_choice(choice)
        if self._finish is not None:
            self._note_extra(event)

    def _start(self, event: ChatEvent) -> None:
        self._is_started = True
        message = {
            **message_head(event.id, event.model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": NO_USAGE if event.usage is None else message_usage(event.usage),
        }
        self._write("message_start", {"type": "message_start", "message": message})

    def _take_choice(self, choice: ChoicePiece) -> None:
        delta = choice.delta
        if delta is not None:
            content = delta.content
            if content and self._kind == "text" and not self._has_more(delta):  # the usual case
                self._out.append(_TEXT % (self._index, _text_of(content)))
            else:
                self._take_delta(delta)
        if choice.finish_reason is not None:
            self._finish = choice.finish_reason
            self._native = choice.native_finish_reason
            self._matched = choice.matched_stop if choice.stop_reason is None else choice.stop_reason

    def _has_more(self, delta: DeltaPiece) -> bool:
        return bool(delta.reasoning_content or delta.reasoning or delta.tool_calls or delta.content_blocks)

    def _take_delta(self, delta: DeltaPiece) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        has_whole = any(_is_whole_reasoning(block) for block in delta.content_blocks or ())
        if reasoning and self._shows_reasoning and not (has_whole and self._kind != "thinking"):
            self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            self._out.append(_REASONING % (self._index, _text_of(reasoning)))
        written = {kind_of(block) for block in delta.content_blocks or ()}
        for block in delta.content_blocks or ():
            self._take_block(block, is_alone=not delta.content and not delta.tool_calls)
        if "text" not in written:
            for text in (delta.content, delta.refusal):
                if text:
                    self._open("text", {"type": "text", "text": ""})
                    self._out.append(_TEXT % (self._index, _text_of(text)))
        if delta.refusal:
            self._has_refusal = True
        if "tool_use" not in written:
            for piece in delta.tool_calls or ():
                if (call := self._calls.take(piece)) is not None:
                    self._take_call(*call)

    def _take_block(self, block: Block, *, is_alone: bool) -> None:
        """Write a whole block of an Anthropic deployment, or what is left of one that was written in pieces.

        Args:
            block: The block with its place.
            is_alone: True if it comes in a live stream, where texts and calls were written before it.
        """
        kind = block.get("type")
        if is_alone and kind == self._kind and block.get("index") == self._index:
            self._close(block)
        elif not (is_alone and kind in ("text", "tool_use")):
            self._close()
            self._write_whole({name: value for name, value in block.items() if name != "index"})
        if kind == "tool_use":
            self._has_call = True

    def _write_whole(self, block: Block) -> None:
        kind = block.get("type")
        if kind == "thinking":
            self._begin(kind, {"type": kind, "thinking": "", "signature": ""})
            self._out.append(_REASONING % (self._index, _text_of(block.get("thinking", ""))))
        elif kind == "text":
            self._begin(kind, {"type": kind, "text": ""})
            self._out.append(_TEXT % (self._index, _text_of(block.get("text", ""))))
        elif kind in ("tool_use", "server_tool_use"):
            self._begin(kind, {**block, "input": {}})
            self._out.append(_ARGUMENTS % (self._index, _text_of(encoded(block.get("input", {})).decode())))
        else:
            self._begin(str(kind), block)
        self._close(block)

    def _take_call(self, place: int, piece: CallPiece) -> None:
        arguments = call_text(piece)
        if place == self._call:
            self._write_arguments(arguments)
        elif place in self._waiting:
            self._waiting[place][1].append(arguments)
        elif place not in self._begun:
            others_wait = bool(self._waiting)
            self._waiting[place] = piece, [arguments]
            if not others_wait and (self._call is None or are_whole_arguments(self._arguments)):
                self._begin_call(place)
        elif arguments.strip():
            raise UpstreamFailed("The deployment went on with a tool call behind what followed it. Try again.")

    def _begin_call(self, place: int) -> None:
        """Write the block of a call that waits, up to the last of its arguments that have come."""
        first, arguments = self._waiting.pop(place)
        self._close()
        self._call, self._has_call = place, True
        self._begun.add(place)
        identifier, name = first.id or f"toolu_{place}", call_name(first)
        self._begin("tool_use", {"type": "tool_use", "id": identifier, "name": name, "input": {}})
        self._write_arguments("".join(arguments))

    def _write_arguments(self, arguments: str) -> None:
        if arguments:
            self._arguments.append(arguments)
            self._out.append(_ARGUMENTS % (self._index, _text_of(arguments)))

    def _open(self, kind: str, block: Block) -> None:
        """Begin a block of this kind, unless one is open."""
        if self._kind != kind:
            self._close()
            self._begin(kind, block)

    def _begin(self, kind: str, block: Block) -> None:
        self._index += 1
        self._kind = kind
        self._write(
            "content_block_start", {"type": "content_block_start", "index": self._index, "content_block": block}
        )

    def _close(self, block: Block | None = None) -> None:
        """End the open block, with the signature or the citations of the whole one."""
        if not self._kind:
            return
        if self._kind == "thinking":
            signature = OWN_SIGNATURE if block is None else block.get("signature") or OWN_SIGNATURE
            self._write_delta({"type": "signature_delta", "signature": signature})
        elif self._kind == "text" and block is not None:
            for citation in block.get("citations") or ():
                self._write_delta({"type": "citations_delta", "citation": citation})
        self._out.append(_STOP % self._index)
        self._kind = ""
        self._call = None
        self._arguments.clear()

    def _note_extra(self, event: ChatEvent) -> None:
        for name in MESSAGE_MEMBERS:
            if (value := getattr(event, name)) is not None:
                self._extra[name] = value

    def _end(self) -> None:
        if self._is_over or not self._is_started:
            return
        for place, piece in self._calls.rest():
            self._waiting[place] = piece, [call_text(piece)]
        for place in sorted(self._waiting):
            self._begin_call(place)
        self._close()
        reason, sequence = stop_reason_of(
            self._finish, self._native, self._matched, has_call=self._has_call, has_refusal=self._has_refusal
        )
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        delta |= {name: self._extra.pop(name) for name in ("container", "stop_details") if name in self._extra}
        usage = message_usage(self._usage)
        self._write("message_delta", {"type": "message_delta", "delta": delta, "usage": usage, **self._extra})
        self._out.append(_MESSAGE_STOP)
        self._is_over = True

    def _write_delta(self, delta: dict[str, Any]) -> None:
        self._write("content_block_delta", {"type": "content_block_delta", "index": self._index, "delta": delta})

    def _write(self, name: str, event: dict[str, Any]) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), encoded(event)))


def _is_whole_reasoning(block: Block) -> bool:
    return block.get("type") == "thinking" and bool(block.get("thinking"))
