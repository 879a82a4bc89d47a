"""MessageEvents: the event stream of a message as that of a chat completion."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.schema import CONTENT_BLOCKS
from gateway.completion.answer_json import as_written, document_of
from gateway.dialects.messages.answer import MESSAGE_MEMBERS, input_of
from gateway.dialects.messages.native_blocks import (
    Block,
    is_expressible,
    is_in_chat_order,
    is_reasoning,
    placed,
)
from gateway.dialects.messages.stop_reasons import choice_end
from gateway.dialects.messages.upstream.answer import chat_error, completion_head
from gateway.dialects.messages.usage import chat_usage
from gateway.errors import UpstreamFailed
from gateway.upstreams.http1.sse import HEARTBEATS, STRAY, SseDecoder, SseError, SseEvent

MAX_MESSAGE_EVENT_BYTES: Final = 32 * 1024 * 1024
_NO_EVENT: Final = "An event of the upstream's answer is none of a message. Try again."
_NO_START: Final = "The upstream's answer has content before the message that it belongs to. Try again."
_WITH_CONTENT: Final = frozenset({"content_block_start", "content_block_delta", "message_delta"})
_DONE: Final = b"data: [DONE]\n\n"
_text_of: Final = msgspec.json.Encoder().encode
_STRINGS: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_decode: Final = msgspec.json.Decoder(float_hook=as_written).decode


class MessageEvents:
    """Translator of one stream of Anthropic's API: `feed` its pieces, cut anywhere, then `finish`."""

    __slots__ = ("_blocks", "_decoder", "_head", "_is_over", "_keeps_all", "_num_calls", "_out", "_prefix", "_usage")

    def __init__(self) -> None:
        self._decoder = SseDecoder(MAX_MESSAGE_EVENT_BYTES, shows_strays=True)
        self._out: list[bytes] = []
        self._head: dict[str, Any] = {}
        self._prefix = b""
        """Beginning of every event with content, up to the value of `delta`."""
        self._blocks: list[Block] = []
        """Blocks so far; the texts of deltas are lists of pieces until the block's end."""
        self._keeps_all = False
        """True once a block, or an order of blocks, came that chat completions cannot express."""
        self._num_calls = 0
        self._usage: dict[str, Any] = {}
        self._is_over = False

    def feed(self, piece: bytes) -> bytes:
        """Return the events of a chat completion for what is whole; raises UpstreamFailed if it is no message."""
        try:
            events = self._decoder.feed(piece)
        except SseError as error:
            raise UpstreamFailed(f"The upstream's answer cannot be read: {error}. Try again.") from None
        for event in events:
            if not self._is_over and event.data.strip():
                self._take_event(_document(event), is_stray=event.event == STRAY)
        found = b"".join(self._out)
        self._out.clear()
        return found

    def finish(self) -> bytes:
        """Return the events of what is left at the end of the body."""
        return self.feed(b"\n\n") if self._decoder.has_pending else b""

    def _take_event(self, event: dict[str, Any], *, is_stray: bool) -> None:
        try:
            self._take(event, is_stray=is_stray)
        except (AttributeError, KeyError, TypeError):  # its members have other types
            raise UpstreamFailed(_NO_EVENT) from None

    def _take(self, event: dict[str, Any], *, is_stray: bool) -> None:
        kind = event.get("type")
        if not self._prefix and kind in _WITH_CONTENT and not is_stray:
            raise UpstreamFailed(_NO_START)
        if kind == "content_block_delta" and not is_stray:
            self._take_delta(event)
        elif kind == "error" or event.get("error"):
            stated = event.get("error")
            error = chat_error(stated if isinstance(stated, dict) else {"message": stated})
            self._out.append(b"data: %b\n\n" % encoded({"error": error}))
            self._is_over = True
        elif is_stray:
            return
        elif kind == "message_start":
            self._start(event.get("message") or {})
        elif kind == "content_block_start":
            self._begin(event.get("content_block") or {})
        elif kind == "content_block_stop":
            self._close()
        elif kind == "message_delta":
            self._end(event)
        elif kind == "message_stop":
            self._out.append(_DONE)
            self._is_over = True
        # A ping and events of unknown types carry nothing.

    def _start(self, message: dict[str, Any]) -> None:
        head = self._head = completion_head(message, "chat.completion.chunk")
        self._prefix = b"data: " + encoded(head)[:-1] + b',"choices":[{"index":0,"delta":'
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        first = {"role": "assistant", "content": ""}
        self._write({**head, "choices": [{"index": 0, "delta": first, "finish_reason": None}], **self._usage_member()})

    def _usage_member(self) -> dict[str, Any]:
        usage = chat_usage(self._usage) if self._usage else None
        return {} if usage is None else {"usage": usage}

    def _begin(self, block: Block) -> None:
        self._close()  # where the server has not done so
        if not self._keeps_all and self._blocks and not is_in_chat_order(self._blocks[-1], block):
            self._keep_all()
        self._blocks.append({**block, "_pieces": []})
        if block.get("type") == "tool_use":
            function = {"name": block.get("name", ""), "arguments": ""}
            call = {"index": self._num_calls, "id": block.get("id", ""), "type": "function", "function": function}
            self._num_calls += 1
            self._delta({"tool_calls": [call]})
        elif block.get("type") == "text" and block.get("text"):
            self._add_text("text", block["text"])
        elif block.get("type") == "thinking" and block.get("thinking"):
            self._add_text("thinking", block["thinking"])

    def _take_delta(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        if not isinstance(delta, dict) or not self._blocks:
            raise UpstreamFailed(_NO_EVENT)
        kind = delta.get("type")
        member = _STRINGS.get(kind) if isinstance(kind, str) else None
        if member is not None:
            self._add_text(member, delta.get(member) or "")
        elif kind == "signature_delta":
            self._blocks[-1]["signature"] = delta.get("signature", "")
        elif kind == "citations_delta":
            block = self._blocks[-1]
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]

    def _add_text(self, member: str, text: str) -> None:
        if not text:
            return
        block = self._blocks[-1]
        block["_pieces"].append(text)
        if member == "text":
            self._out.append(b'%b{"content":%b},"finish_reason":null}]}\n\n' % (self._prefix, _text_of(text)))
        elif member == "thinking":
            piece = b'%b{"reasoning_content":%b},"finish_reason":null}]}\n\n'
            self._out.append(piece % (self._prefix, _text_of(text)))
        elif block.get("type") == "tool_use":
            call = b'%b{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]},"finish_reason":null}]}\n\n'
            self._out.append(call % (self._prefix, self._num_calls - 1, _text_of(text)))

    def _close(self) -> None:
        """End the last block; deliver it whole where chat completions cannot express it."""
        if not self._blocks or "_pieces" not in self._blocks[-1]:
            return
        open_block = self._blocks[-1]
        if open_block.get("type") == "tool_use" and not open_block["_pieces"]:
            self._add_text("partial_json", encoded(open_block.get("input") or {}).decode())
        block = self._blocks[-1] = _whole(open_block)
        if self._keeps_all or is_reasoning(block):  # reasoning comes first, or all is kept since it began
            self._delta({CONTENT_BLOCKS: [placed(len(self._blocks) - 1, block)]})
        elif not is_expressible(block):
            self._keep_all()

    def _keep_all(self) -> None:
        """Deliver all blocks so far but the reasoning at the beginning, which was delivered."""
        self._keeps_all = True
        num_sent = next((at for at, block in enumerate(self._blocks) if not is_reasoning(block)), len(self._blocks))
        stored = [placed(at, block) for at, block in enumerate(self._blocks) if at >= num_sent]
        if stored:
            self._delta({CONTENT_BLOCKS: stored})

    def _end(self, event: dict[str, Any]) -> None:
        delta = event.get("delta") or {}
        if isinstance(event.get("usage"), dict):
            self._usage = {**self._usage, **{k: v for k, v in event["usage"].items() if v is not None}}
        extra = {name: value for name in MESSAGE_MEMBERS if (value := delta.get(name, event.get(name))) is not None}
        choice = {"index": 0, "delta": {}, **choice_end(delta.get("stop_reason"), delta.get("stop_sequence"))}
        self._write({**self._head, "choices": [choice], **extra})
        self._write({**self._head, "choices": [], **self._usage_member()})

    def _delta(self, delta: dict[str, Any]) -> None:
        self._write({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def _write(self, event: dict[str, Any]) -> None:
        self._out.append(b"data: %b\n\n" % encoded(event))


def _document(event: SseEvent) -> dict[str, Any]:
    """Return what an event says; nothing for a heartbeat, the mark of another API, and what no client reads.

    Raises:
        UpstreamFailed: It is no JSON object: its text would be missing from the answer.
    """
    try:
        document = _decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = document_of(event.data)
    if isinstance(document, dict):
        return document
    if event.event == STRAY or event.event in HEARTBEATS or event.is_done:
        return {}
    raise UpstreamFailed(_NO_EVENT)


def _whole(block: Block) -> Block:
    """Return a block with the pieces of its deltas in their member."""
    text = "".join(block.get("_pieces", ()))
    found = {name: value for name, value in block.items() if name != "_pieces"}
    kind = found.get("type")
    if kind in ("text", "thinking"):
        found[kind] = text
    elif text:
        found["input"] = input_of(text)
    return found
