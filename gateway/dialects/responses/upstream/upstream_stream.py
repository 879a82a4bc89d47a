"""ResponsesTranslator: a deployment's stream of a response as the events of a chat completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.chat.schema import OUTPUT_ITEMS
from gateway.completion.answer_json import document_of
from gateway.dialects.chat_events import MAX_EVENT_BYTES
from gateway.dialects.responses.upstream.upstream_answer import (
    chat_annotation,
    chat_call,
    finish_reason_of_response,
    message_of_output,
    reasoning_text,
    shared_members_of,
    usage_of_response,
)
from gateway.errors import UpstreamFailed
from gateway.upstreams.http1.sse import HEARTBEATS, SseDecoder, SseError, SseEvent

_DONE: Final = b"data: [DONE]\n\n"
_NO_EVENT: Final = "An event of the upstream's answer is none of a response. Try again."
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_SILENT: Final = frozenset({"message"})

Event = dict[str, Any]


class ResponsesTranslator:
    """Translator of one stream; comments pass on, and events that chat completions have no words for are dropped."""

    __slots__ = ("_calls", "_decoder", "_envelope", "_has_text", "_is_over", "_reasoning", "_summaries", "_written")

    def __init__(self) -> None:
        self._decoder = SseDecoder(MAX_EVENT_BYTES)
        self._envelope: dict[str, Any] = {"id": "", "created": 0, "model": ""}
        self._calls: dict[int, tuple[int, str, int]] = {}
        """Index, type and characters sent of each call, by its place in the output."""
        self._reasoning: set[object] = set()
        """Ids of the reasoning items of which some text was sent."""
        self._summaries: dict[object, int] = {}
        """Number of parts of each summary, by the id of its item."""
        self._has_text = False
        self._is_over = False
        self._written: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        """Return the events of a chat completion that a piece completes.

        Raises:
            UpstreamFailed: An event is too large, or malformed.
        """
        try:
            events = self._decoder.feed(piece)
        except SseError as error:
            raise UpstreamFailed(f"The upstream's answer cannot be read: {error}. Try again.") from None
        for event in events:
            if not self._is_over and event.data.strip():
                self._take(event)
        written, self._written = self._written, []
        return b"".join(written)

    def finish(self) -> bytes:
        """Return the event that the stream's end completes."""
        return self.feed(b"\n\n")

    def _take(self, sent: SseEvent) -> None:
        event = document_of(sent.data)
        if not isinstance(event, dict):
            if sent.event in HEARTBEATS or sent.is_done:
                return
            raise UpstreamFailed(_NO_EVENT)  # its text would be missing from the answer
        kind = event.get("type")
        take = _TAKES.get(kind) if isinstance(kind, str) else None
        if take is None:
            return
        try:
            take(self, event)
        except (AttributeError, KeyError, TypeError):
            raise UpstreamFailed(f"An event {kind!s:.60} of the upstream's answer is malformed. Try again.") from None

    def _send(self, delta: dict[str, Any], **members: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **members}
        self._write({"choices": [choice]})

    def _write(self, members: dict[str, Any]) -> None:
        event = {**self._envelope, "object": "chat.completion.chunk", **members}
        self._written.append(b"data: %b\n\n" % encoded(event))

    def _begin(self, event: Event) -> None:
        self._envelope = shared_members_of(event["response"])
        self._send({"role": "assistant", "content": ""})

    def _text(self, event: Event) -> None:
        self._has_text = True
        logprobs = event.get("logprobs")
        members = {"logprobs": {"content": logprobs, "refusal": None}} if logprobs else {}
        self._send({"content": event["delta"]}, **members)

    def _refusal(self, event: Event) -> None:
        self._has_text = True
        self._send({"refusal": event["delta"]})

    def _annotation(self, event: Event) -> None:
        self._send({"annotations": [chat_annotation(event["annotation"])]})

    def _reasoning_text(self, event: Event) -> None:
        item_id = event.get("item_id")
        if item_id not in self._reasoning:
            self._mark_reasoning(item_id, 0)
        self._send({"reasoning_content": event["delta"]})

    def _summary_part(self, event: Event) -> None:
        """Begin a part of a summary; later parts stand apart."""
        item_id = event.get("item_id")
        number = self._summaries[item_id] = self._summaries.get(item_id, 0) + 1
        self._mark_reasoning(item_id, number)

    def _summary_text(self, event: Event) -> None:
        if event.get("item_id") not in self._summaries:
            self._summary_part(event)
        self._send({"reasoning_content": event["delta"]})

    def _mark_reasoning(self, item_id: object, num_parts: int) -> None:
        """Send the id of the reasoning that follows, which a Responses client has to get."""
        self._reasoning.add(item_id)
        parts = [{"type": "summary_text", "text": ""}] * num_parts
        self._send_item({"id": item_id, "type": "reasoning", "status": "in_progress", "summary": parts})

    def _send_item(self, item: dict[str, Any]) -> None:
        at = int(self._has_text) + len(self._calls)
        self._send({OUTPUT_ITEMS: [{"at": at, "item": item}]})

    def _item_added(self, event: Event) -> None:
        item = event["item"]
        if item["type"] in _CALLS:
            self._begin_call(event["output_index"], item)

    def _begin_call(self, place: int, item: dict[str, Any]) -> None:
        index = len(self._calls)
        call = chat_call(item)
        given = call["custom"]["input"] if "custom" in call else call["function"]["arguments"]
        self._calls[place] = index, item["type"], len(given)
        self._send({"tool_calls": [{"index": index, **call}]})

    def _call_delta(self, event: Event) -> None:
        index, kind, num_chars = self._calls[event["output_index"]]
        self._calls[event["output_index"]] = index, kind, num_chars + len(event["delta"])
        self._send_arguments(index, kind, event["delta"])

    def _send_arguments(self, index: int, kind: str, text: str) -> None:
        piece = {"function": {"arguments": text}} if kind == "function_call" else {"custom": {"input": text}}
        self._send({"tool_calls": [{"index": index, **piece}]})

    def _item_done(self, event: Event) -> None:
        item, place = event["item"], event["output_index"]
        if item["type"] in _CALLS:
            self._end_call(place, item)
        elif item["type"] == "reasoning":
            if item.get("id") not in self._reasoning and (text := reasoning_text(item)):
                self._send({"reasoning_content": text})
            self._send_item({**item, "status": "completed"})
        elif item["type"] not in _SILENT:
            self._send_item(item)

    def _end_call(self, place: int, item: dict[str, Any]) -> None:
        """Send what no delta has brought."""
        if place not in self._calls:
            self._begin_call(place, item)
            return
        index, kind, num_chars = self._calls[place]
        text = (item.get("input") if kind == "custom_tool_call" else item.get("arguments")) or ""
        if rest := text[num_chars:]:
            self._send_arguments(index, kind, rest)

    def _end(self, event: Event) -> None:
        response = event["response"]
        if not (self._has_text or self._calls) and response.get("output"):
            self._send_whole(response["output"])
        self._is_over = True
        reason = finish_reason_of_response(response, has_calls=bool(self._calls))
        self._send({}, finish_reason=reason)
        if (usage := usage_of_response(response)) is not None:
            self._write({"choices": [], "usage": usage})
        self._written.append(_DONE)

    def _send_whole(self, output: list[Any]) -> None:
        """Send an output that no event announced."""
        message, _ = message_of_output(output)
        calls = message.get("tool_calls", ())
        delta = {name: value for name, value in message.items() if name in ("content", "refusal") and value}
        if delta:
            self._send(delta)
        for index, call in enumerate(calls):
            self._calls[index] = index, "", 0
            self._send({"tool_calls": [{"index": index, **call}]})

    def _fail(self, event: Event) -> None:
        """Pass an error on as one of chat completions; what follows it says the same again."""
        self._is_over = True
        stated = event["response"].get("error") if "response" in event else event.get("error", event)
        error = stated if isinstance(stated, dict) else {"message": stated}
        stated_members = {name: error.get(name) for name in ("message", "type", "param", "code")}
        if stated_members["type"] in (None, "error"):
            stated_members["type"] = stated_members["code"] or "server_error"
        self._written.append(b"data: %b\n\n" % encoded({"error": stated_members}))


_TAKES: Final[Mapping[str, Callable[[ResponsesTranslator, Event], None]]] = {
    "response.created": ResponsesTranslator._begin,
    "response.output_text.delta": ResponsesTranslator._text,
    "response.refusal.delta": ResponsesTranslator._refusal,
    "response.output_text.annotation.added": ResponsesTranslator._annotation,
    "response.reasoning_text.delta": ResponsesTranslator._reasoning_text,
    "response.reasoning_summary_part.added": ResponsesTranslator._summary_part,
    "response.reasoning_summary_text.delta": ResponsesTranslator._summary_text,
    "response.output_item.added": ResponsesTranslator._item_added,
    "response.function_call_arguments.delta": ResponsesTranslator._call_delta,
    "response.custom_tool_call_input.delta": ResponsesTranslator._call_delta,
    "response.output_item.done": ResponsesTranslator._item_done,
    "response.completed": ResponsesTranslator._end,
    "response.incomplete": ResponsesTranslator._end,
    "response.failed": ResponsesTranslator._fail,
    "error": ResponsesTranslator._fail,
}
