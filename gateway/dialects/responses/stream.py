"""ResponseStream: the events of a chat completion as those of a response, one by one."""

from __future__ import annotations

from typing import Any, Final

from gateway.dialects.call_pieces import CallPieces, call_name, call_text
from gateway.dialects.chat_events import CallPiece, ChatEvent, ChatEvents, ChoicePiece, DeltaPiece
from gateway.dialects.responses.event_writer import EventWriter
from gateway.dialects.responses.failures import failure_of_event, response_error
from gateway.dialects.responses.open_items import ItemStatus, OpenCall, OpenMessage, OpenReasoning
from gateway.dialects.responses.output_items import responses_annotations, responses_logprobs
from gateway.dialects.responses.response_frame import ResponseFrame, incomplete_reason, responses_usage

_LONG_CHARS: Final = 64 * 1024
"""Length of an answer whose last events, which repeat it, are left to `finish`."""


class ResponseStream:
    """Translator of one stream: `feed` pieces cut anywhere, `finish` with the last one."""

    __slots__ = (
        *("_call_pieces", "_calls", "_events", "_failure", "_finish_reason", "_frame", "_is_over", "_message"),
        *("_num_chars", "_output", "_penstock", "_reasoning", "_tier", "_usage", "_writer", "has_begun", "response"),
    )

    def __init__(self, frame: ResponseFrame) -> None:
        self._frame = frame
        self._events = ChatEvents()
        self._writer = EventWriter()
        self._output: list[Any] = []
        """Items in the order of their places; None for one that is open."""
        self._message: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._call_pieces = CallPieces()
        self._calls: dict[int, OpenCall] = {}
        """Calls by their place among the chat completion's."""
        self._num_chars = 0
        self._usage: dict[str, Any] | None = None
        self._tier: Any = None
        self._penstock: Any = None
        self._finish_reason: str | None = None
        self._failure: dict[str, Any] | None = None
        self._is_over = False
        self.has_begun = False
        self.response: dict[str, Any] | None = None
        """The whole response, for its reader to take; None until it has ended, and after a failure."""

    def feed(self, piece: bytes) -> bytes:
        """Return the events that a piece completes.

        Raises:
            UpstreamFailed: An event is none of a chat completion.
        """
        for event in self._events.feed(piece):
            self._take(event)
        if self._events.is_done and self._may_end_now:
            self._end()
        return self._writer.take()

    def finish(self, piece: bytes) -> bytes:
        """Return the events of the last piece, and the end of the response.

        Raises:
            UpstreamFailed: An event is none of a chat completion.
        """
        for event in self._events.finish(piece):
            self._take(event)
        self._end()
        return self._writer.take()

    @property
    def _may_end_now(self) -> bool:
        """Return whether the end may be written before the stream is over."""
        return not self._frame.is_stored and self._num_chars < _LONG_CHARS

    def _take(self, event: ChatEvent) -> None:
        if self._is_over:
            return
        if event.error is not None:
            self._failure = self._failure or failure_of_event(event.error)
            return
        if not self.has_begun:
            self._frame.model = event.model or self._frame.model
            self._begin()
        if event.usage is not None:
            self._usage = event.usage
        if event.service_tier is not None:
            self._tier = event.service_tier
        if event.penstock is not None:
            self._penstock = event.penstock
        for choice in event.choices or ():
            if choice.index == 0:  # a response has one
                self._take_choice(choice)

    def _take_choice(self, choice: ChoicePiece) -> None:
        delta = choice.delta
        if delta is not None:
            if delta.content:
                if delta.reasoning_content or delta.reasoning or delta.output_items:
                    self._take_aside(delta)
                self._num_chars += len(delta.content)
                logprobs = responses_logprobs(choice.logprobs) if choice.logprobs else []
                (self._message or self._open_message()).add_text(delta.content, logprobs)
            else:
                self._take_aside(delta)
            if delta.refusal:
                (self._message or self._open_message()).add_refusal(delta.refusal)
            if delta.annotations:
                annotations = responses_annotations(delta.annotations)
                (self._message or self._open_message()).add_annotations(annotations)
            for piece in delta.tool_calls or ():
                if (call := self._call_pieces.take(piece)) is not None:
                    self._take_call(*call)
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason

    def _take_aside(self, delta: DeltaPiece) -> None:
        """Take reasoning, and items that chat completions have no words for."""
        for entry in delta.output_items or ():
            if isinstance(item := entry.get("item"), dict):
                self._take_item(item)
        text = delta.reasoning_content or delta.reasoning
        if text:
            self._num_chars += len(text)
            (self._reasoning or self._open_reasoning(None)).add(text)

    def _take_item(self, item: dict[str, Any]) -> None:
        if item.get("type") != "reasoning":
            self._close_model_text()
            place = {"output_index": len(self._output), "item": item}
            self._writer.write("response.output_item.added", place)
            self._writer.write("response.output_item.done", place)
            self._output.append(item)
            return
        reasoning = self._reasoning
        if reasoning is None or reasoning.id != item.get("id"):
            reasoning = self._open_reasoning(item.get("id"))
        if item.get("status") == "in_progress":
            reasoning.begin_summary(len(item.get("summary") or ()))
        else:
            self._close_reasoning(item)

    def _take_call(self, number: int, piece: CallPiece) -> None:
        call = self._calls.get(number) or self._open_call(number, piece)
        if given := call_text(piece):
            self._num_chars += len(given)
            call.add(given)

    def _begin(self) -> None:
        self.has_begun = True
        response = self._frame.document("in_progress", [])
        self._writer.write("response.created", {"response": response})
        self._writer.write("response.in_progress", {"response": response})

    def _open_message(self) -> OpenMessage:
        self._close_reasoning()
        self._close_whole_calls()
        place = self._next_place()
        self._message = OpenMessage(self._writer, self._frame.item_id("msg", place), place)
        return self._message

    def _open_reasoning(self, item_id: str | None) -> OpenReasoning:
        self._close_model_text()
        place = self._next_place()
        self._reasoning = OpenReasoning(self._writer, item_id or self._frame.item_id("rs", place), place)
        return self._reasoning

    def _open_call(self, number: int, piece: CallPiece) -> OpenCall:
        self._close_model_text()
        place = self._next_place()
        is_custom = piece.custom is not None
        item_id = self._frame.item_id("ctc" if is_custom else "fc", place)
        ids = (item_id, piece.id or self._frame.item_id("call", place))
        call = OpenCall(self._writer, ids, place, is_custom=is_custom, name=call_name(piece))
        self._calls[number] = call
        return call

    def _next_place(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _close_model_text(self) -> None:
        """Close all that another item ends: items follow each other."""
        self._close_reasoning()
        self._close_message("completed")
        self._close_whole_calls()

    def _close_reasoning(self, whole: dict[str, Any] | None = None) -> None:
        if self._reasoning is not None:
            self._output[self._reasoning.index] = self._reasoning.close(whole)
            self._reasoning = None

    def _close_message(self, status: ItemStatus) -> None:
        if self._message is not None:
            self._output[self._message.index] = self._message.close(status)
            self._message = None

    def _close_whole_calls(self) -> None:
        """Close the calls whose arguments are whole; others may go on beside the next item."""
        for call in self._calls.values():
            if call.item is None and call.is_whole:
                self._output[call.index] = call.close("completed")

    def _end(self) -> None:
        """Write the end of the response, once."""
        if self._is_over:
            return
        if not self.has_begun:
            self._begin()
        if self._failure is not None:
            self._fail(self._failure)
        else:
            self._complete()
        self._is_over = True

    def _complete(self) -> None:
        reason = incomplete_reason(self._finish_reason)
        status: ItemStatus = "completed" if reason is None else "incomplete"
        for number, piece in self._call_pieces.rest():
            self._take_call(number, piece)
        if not self._output:
            self._open_message()
        self._close_reasoning()
        self._close_message(status)
        for call in self._calls.values():
            if call.item is None:
                self._output[call.index] = call.close("completed" if call.is_whole else status)
        usage, tier = responses_usage(self._usage), self._tier
        response = self._frame.document(status, self._output, usage=usage, reason=reason, service_tier=tier)
        if self._penstock is not None:
            response = {"penstock": self._penstock, **response}
        self._writer.write(f"response.{status}", {"response": response})
        self.response = response

    def _fail(self, failure: dict[str, Any]) -> None:
        self._writer.write("error", failure)
        output = [item for item in self._output if item is not None]
        response = self._frame.document(
            "failed", output, usage=responses_usage(self._usage), error=response_error(failure)
        )
        self._writer.write("response.failed", {"response": response})
