"""MessageTurns: the messages of a chat document as the turns of a Messages request."""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.chat.schema import CONTENT_BLOCKS
from gateway.dialects.chat_calls import calls_of
from gateway.dialects.messages.answer import input_of
from gateway.dialects.messages.conversation import DOCUMENT, TOOL_RESULT
from gateway.dialects.messages.native_blocks import Block, restored
from gateway.errors import InvalidRequest

_ID_MARKS: Final = re.compile(r"[^A-Za-z0-9_-]")
_INSTRUCTING: Final = frozenset({"system", "developer"})
_RESULT_MEMBERS: Final = frozenset({"role", "tool_call_id", "content", "name", CONTENT_BLOCKS})
_CALL_MEMBERS: Final = frozenset({"id", "type", "function", "index"})
_PART_MEMBERS: Final = frozenset({"type", "image_url", "file", DOCUMENT, TOOL_RESULT})


class MessageTurns:
    """Turns in the making: `add` the messages in order. Messages of one side join in one turn."""

    __slots__ = ("_results", "system", "turns")

    def __init__(self) -> None:
        self.system: str | list[Block] = ""
        """Instructions before the conversation."""
        self.turns: list[dict[str, Any]] = []
        self._results: dict[str, Block] = {}
        """Tool results of the last turn by the ids of their calls."""

    def add(self, message: dict[str, Any], path: str) -> None:
        """Add a message of the chat document; raises InvalidRequest for content that has no form here."""
        role = message["role"]
        if role in _INSTRUCTING:
            self._add_system(message, path)
        elif role == "assistant":
            self._append("assistant", _assistant_blocks(message))
        elif role in ("tool", "function"):
            self._add_result(message, path)
        else:
            self._add_user(message, path)

    def _add_system(self, message: dict[str, Any], path: str) -> None:
        content = message["content"]
        if self.turns:
            self._append("system", _text_blocks(content))
        elif not self.system:
            self.system = content if isinstance(content, str) else _blocks(content, path)
        else:
            self.system = [*_text_blocks(self.system), *_text_blocks(content)]

    def _add_result(self, message: dict[str, Any], path: str) -> None:
        call_id = _call_id(message.get("tool_call_id") or message.get("name"))
        rest = {name: value for name, value in message.items() if name not in _RESULT_MEMBERS}
        result: Block = {**rest, "type": "tool_result", "tool_use_id": call_id}
        content = message.get("content")
        if isinstance(content, list) or message.get(CONTENT_BLOCKS):
            texts = _blocks(content, path) if isinstance(content, list) else _text_blocks(content)
            result["content"] = restored(texts, [], message.get(CONTENT_BLOCKS))
        elif content:
            result["content"] = content
        self._results[call_id] = result
        self._append("user", [result])

    def _add_user(self, message: dict[str, Any], path: str) -> None:
        content, stored = message["content"], message.get(CONTENT_BLOCKS)
        if isinstance(content, str) and not stored:
            if self.turns and self.turns[-1]["role"] == "user":
                self._append("user", _text_blocks(content))
            else:
                self.turns.append({"role": "user", "content": content})
            return
        parts: list[Block] = list(content) if isinstance(content, list) else _text_blocks(content)
        blocks: list[Block] = []
        for index, part in enumerate(restored(parts, [], stored)):
            block = _block(part, f"{path}.content[{index}]")
            place = part.get(TOOL_RESULT)
            if isinstance(place, dict) and _call_id(place.get("tool_use_id")) in self._results:
                _put_back(self._results[_call_id(place["tool_use_id"])], block, place.get("index"))
            else:
                blocks.append(block)
        if blocks:
            self._append("user", blocks)

    def _append(self, role: str, blocks: list[Block]) -> None:
        """Add blocks to the last turn if it is this side's, else in a new one."""
        last = self.turns[-1] if self.turns else None
        if last is not None and last["role"] == role:
            last["content"] = [*_text_blocks(last["content"]), *blocks]
            return
        if role != "user":
            self._results.clear()
        self.turns.append({"role": role, "content": blocks})


def _assistant_blocks(message: dict[str, Any]) -> list[Block]:
    content = message.get("content")
    texts = [
        *(_blocks(content, "") if isinstance(content, list) else _text_blocks(content)),
        *_text_blocks(message.get("refusal")),
    ]
    calls = [_tool_use(call) for call in calls_of(message)]
    blocks = restored(texts, calls, message.get(CONTENT_BLOCKS))
    return [_as_sent(block) for block in blocks if block.get("type") != "text" or block.get("text")]


def _as_sent(block: Block) -> Block:
    """Return a block that may have been carried; a call gets the id by which its result refers to it."""
    stated = block.get("id")
    if block.get("type") != "tool_use" or _call_id(stated) == stated:
        return block
    return {**block, "id": _call_id(stated)}


def _tool_use(call: dict[str, Any]) -> Block:
    function = call.get("function") or {}
    rest = {name: value for name, value in call.items() if name not in _CALL_MEMBERS}
    use = {"type": "tool_use", "id": _call_id(call.get("id")), "name": function.get("name", "")}
    return {**rest, **use, "input": input_of(function.get("arguments"))}


def _put_back(result: Block, block: Block, index: Any) -> None:
    """Put an image back into the tool's output that it stood in."""
    content = result.get("content") or []
    blocks = _text_blocks(content) if isinstance(content, str) else content
    place = index if type(index) is int else len(blocks)
    result["content"] = [*blocks[:place], block, *blocks[place:]]


def _text_blocks(content: Any) -> list[Block]:
    """Return text as blocks; an empty text is none, because Anthropic's API refuses it."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _blocks(parts: list[Any], path: str) -> list[Block]:
    blocks = [_block(part, f"{path}.content[{index}]") for index, part in enumerate(parts)]
    return [block for block in blocks if block.get("type") != "text" or block.get("text")]


def _block(part: Block, path: str) -> Block:
    """Return a part of a chat message as a block; one that is a block already stays."""
    kind = part.get("type")
    rest = {name: value for name, value in part.items() if name not in _PART_MEMBERS}
    if kind == "image_url":
        stated = part["image_url"]
        return {**rest, "type": "image", "source": _source(stated["url"] if isinstance(stated, dict) else stated)}
    if kind == "file":
        return {**rest, **_document(part, path)}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal", "")}
    if kind in ("input_audio", "video_url", "audio_url"):
        message = f"{path}.type: Anthropic's API, which this model is served by, takes no `{kind}`. Remove it."
        raise InvalidRequest(message, param=f"{path}.type", code="unsupported_parameter")
    return part


def _document(part: Block, path: str) -> Block:
    file = part.get("file")
    data = file.get("file_data") if isinstance(file, dict) else None
    if not isinstance(file, dict) or not isinstance(data, str):
        message = f"{path}.file.file_data: Anthropic's API, which this model is served by, needs the file itself here."
        raise InvalidRequest(message, param=f"{path}.file.file_data", code="unsupported_parameter")
    stated = part.get(DOCUMENT)
    rest = stated if isinstance(stated, dict) else {"title": file["filename"]} if file.get("filename") else {}
    return {**rest, "type": "document", "source": _source(data if data.startswith(("data:", "http")) else _pdf(data))}


def _pdf(data: str) -> str:
    return f"data:application/pdf;base64,{data}"


def _source(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url[len("data:") :].partition(",")
    return {"type": "base64", "media_type": head.partition(";")[0], "data": data}


def _call_id(stated: Any) -> str:
    """Return the id of a call with the characters that Anthropic's API allows."""
    return _ID_MARKS.sub("_", stated) if isinstance(stated, str) else "toolu_0"
