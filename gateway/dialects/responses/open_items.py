"""Open items: the items of a response's output while their pieces arrive, each with the events that it takes."""

from __future__ import annotations

from typing import Any, Final, Literal

from gateway.dialects.call_pieces import are_whole_arguments
from gateway.dialects.responses.event_writer import DeltaForm, EventWriter
from gateway.dialects.responses.output_items import (
    call_item,
    custom_call_item,
    message_item,
    reasoning_item,
    refusal_part,
    text_part,
)
from gateway.errors import UpstreamFailed

ItemStatus = Literal["completed", "incomplete"]

_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_PART_ADDED: Final = "response.content_part.added"
_PART_DONE: Final = "response.content_part.done"


class OpenMessage:
    """A message: parts of text, and of refusal."""

    __slots__ = ("_annotations", "_content", "_form", "_id", "_is_text", "_logprobs", "_pieces", "_writer", "index")

    def __init__(self, writer: EventWriter, item_id: str, index: int) -> None:
        """Open the message at a place in the output."""
        self._writer = writer
        self._id = item_id
        self.index = index
        """Place in the output."""
        self._content: list[Any] = []
        self._form: DeltaForm | None = None
        self._is_text = True
        self._pieces: list[str] = []
        self._annotations: list[Any] = []
        self._logprobs: list[Any] = []
        writer.write(_ADDED, {"output_index": index, "item": message_item(item_id, [], "in_progress")})

    def add_text(self, text: str, logprobs: list[Any]) -> None:
        """Add a piece of text."""
        form = self._form if self._is_text else None
        if form is None:
            form = self._open_part(is_text=True)
        self._pieces.append(text)
        if logprobs:
            self._logprobs += logprobs
            members = {**self._place, "delta": text, "logprobs": logprobs}
            self._writer.write("response.output_text.delta", members)
        else:
            self._writer.write_delta(form, text)

    def add_refusal(self, text: str) -> None:
        """Add a piece of a refusal."""
        form = None if self._is_text else self._form
        if form is None:
            form = self._open_part(is_text=False)
        self._pieces.append(text)
        self._writer.write_delta(form, text)

    def add_annotations(self, annotations: list[Any]) -> None:
        """Add annotations of the text."""
        if self._form is None or not self._is_text:
            self._open_part(is_text=True)
        for annotation in annotations:
            place = {**self._place, "annotation_index": len(self._annotations)}
            self._writer.write("response.output_text.annotation.added", {**place, "annotation": annotation})
            self._annotations.append(annotation)

    def close(self, status: ItemStatus) -> dict[str, Any]:
        """Write the end of the message and return it."""
        if not self._content and self._form is None:
            self._open_part(is_text=True)
        self._close_part()
        item = message_item(self._id, self._content, status)
        self._writer.write(_DONE, {"output_index": self.index, "item": item})
        return item

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self.index, "content_index": len(self._content)}

    def _open_part(self, *, is_text: bool) -> DeltaForm:
        self._close_part()
        self._is_text = is_text
        place = self._place
        if is_text:
            form = self._form = DeltaForm("response.output_text.delta", **place, logprobs=[])
        else:
            form = self._form = DeltaForm("response.refusal.delta", **place)
        self._writer.write(_PART_ADDED, {**place, "part": text_part("") if is_text else refusal_part("")})
        return form

    def _close_part(self) -> None:
        if self._form is None:
            return
        place, text = self._place, "".join(self._pieces)
        if self._is_text:
            part = text_part(text, self._annotations, self._logprobs)
            self._writer.write("response.output_text.done", {**place, "text": text, "logprobs": self._logprobs})
        else:
            part = refusal_part(text)
            self._writer.write("response.refusal.done", {**place, "refusal": text})
        self._writer.write(_PART_DONE, {**place, "part": part})
        self._content.append(part)
        self._form, self._pieces, self._annotations, self._logprobs = None, [], [], []


class OpenReasoning:
    """Reasoning: its text, or parts of its summary where a Responses deployment sends these."""

    __slots__ = ("_form", "_id", "_num_parts", "_pieces", "_summary", "_writer", "index")

    def __init__(self, writer: EventWriter, item_id: str, index: int) -> None:
        """Open the reasoning at a place in the output."""
        self._writer = writer
        self._id = item_id
        self.index = index
        """Place in the output."""
        self._form: DeltaForm | None = None
        self._pieces: list[str] = []
        self._num_parts = 0
        self._summary: list[Any] = []
        writer.write(_ADDED, {"output_index": index, "item": reasoning_item(item_id, "", "in_progress")})

    @property
    def id(self) -> str:
        """Return the item's id."""
        return self._id

    def begin_summary(self, num_parts: int) -> None:
        """Begin the next part of the summary, until there are `num_parts`."""
        while self._num_parts < num_parts:
            self._close_part()
            place = {"item_id": self._id, "output_index": self.index, "summary_index": self._num_parts}
            self._writer.write(
                "response.reasoning_summary_part.added", {**place, "part": {"type": "summary_text", "text": ""}}
            )
            self._form = DeltaForm("response.reasoning_summary_text.delta", **place)
            self._num_parts += 1

    def add(self, text: str) -> None:
        """Add a piece of text or of the summary."""
        if self._form is None:
            place = {"item_id": self._id, "output_index": self.index, "content_index": 0}
            self._writer.write(_PART_ADDED, {**place, "part": {"type": "reasoning_text", "text": ""}})
            self._form = DeltaForm("response.reasoning_text.delta", **place)
        self._pieces.append(text)
        self._writer.write_delta(self._form, text)

    def close(self, whole: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the end of the reasoning and return it; `whole` is the deployment's own item, where it sent one."""
        text = self._close_part()
        item = whole or {**reasoning_item(self._id, text), "summary": self._summary}
        self._writer.write(_DONE, {"output_index": self.index, "item": item})
        return item

    def _close_part(self) -> str:
        """Close the open part; returns its text unless it was one of the summary."""
        if self._form is None:
            return ""
        text = "".join(self._pieces)
        place: dict[str, Any] = {"item_id": self._id, "output_index": self.index}
        self._form, self._pieces = None, []
        if self._num_parts:
            place["summary_index"] = self._num_parts - 1
            part = {"type": "summary_text", "text": text}
            self._writer.write("response.reasoning_summary_text.done", {**place, "text": text})
            self._writer.write("response.reasoning_summary_part.done", {**place, "part": part})
            self._summary.append(part)
            return ""
        place["content_index"] = 0
        self._writer.write("response.reasoning_text.done", {**place, "text": text})
        self._writer.write(_PART_DONE, {**place, "part": {"type": "reasoning_text", "text": text}})
        return text


class OpenCall:
    """A call of a function, or of a custom tool; it begins with its name."""

    __slots__ = ("_call_id", "_form", "_id", "_is_custom", "_name", "_pieces", "_writer", "index", "item")

    def __init__(self, writer: EventWriter, ids: tuple[str, str], index: int, *, is_custom: bool, name: str) -> None:
        """Open a call at a place in the output; `ids` are those of the item and of the call."""
        self._writer = writer
        self._id, self._call_id = ids
        self.index = index
        """Place in the output."""
        self._is_custom = is_custom
        self._name = name
        self._pieces: list[str] = []
        kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        self._form = DeltaForm(f"response.{kind}.delta", item_id=self._id, output_index=index)
        self.item: dict[str, Any] | None = None
        """The whole call; None until it is closed."""
        writer.write(_ADDED, {"output_index": index, "item": self._item("", "in_progress")})

    @property
    def is_whole(self) -> bool:
        """Return whether the arguments so far are a JSON value, to which nothing can be added."""
        return not self._is_custom and are_whole_arguments(self._pieces)

    def add(self, piece: str) -> None:
        """Add a piece of the arguments.

        Raises:
            UpstreamFailed: The call is closed already.
        """
        if self.item is not None:
            if piece.isspace():
                return
            raise UpstreamFailed("The upstream went on with a tool call that was whole. Try again.")
        self._pieces.append(piece)
        self._writer.write_delta(self._form, piece)

    def close(self, status: ItemStatus) -> dict[str, Any]:
        """Write the end of the call and return it."""
        text = "".join(self._pieces)
        place = {"item_id": self._id, "output_index": self.index}
        if self._is_custom:
            self._writer.write("response.custom_tool_call_input.done", {**place, "input": text})
        else:
            members = {**place, "name": self._name, "arguments": text}
            self._writer.write("response.function_call_arguments.done", members)
        self.item = self._item(text, status)
        self._writer.write(_DONE, {"output_index": self.index, "item": self.item})
        return self.item

    def _item(self, text: str, status: str) -> dict[str, Any]:
        make = custom_call_item if self._is_custom else call_item
        return make(self._id, self._call_id, self._name, text, status)
