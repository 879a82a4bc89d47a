"""ChatTurns: the conversation of a Messages request as the messages of a chat document.

What chat completions cannot express is carried in members of its own (`native_blocks`): only deployments that speak the
Messages API get it back.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.schema import CONTENT_BLOCKS
from gateway.dialects.messages.native_blocks import Block, is_own_reasoning, placed
from gateway.dialects.messages.rules import block_fault, wrong_member
from gateway.dialects.messages.schema import (
    Base64Source,
    ImageBlock,
    MessageTurn,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)
from gateway.errors import InvalidRequest

TOOL_RESULT: Final = "tool_result"
"""Member of an image that stands in a tool's output: the call's id, and the place of the image there."""
DOCUMENT: Final = "document"
"""Member of a file part: the members of the document block besides its source."""
_T = TypeVar("_T")
_PDF: Final = "application/pdf"
_NOTHING: Final[Block] = {}
_UNSERVED_SOURCE: Final = "file"
_MEMBERS: Final = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}


class ChatTurns:
    """Messages of a chat document, in the making: `add` the turns of the conversation in order."""

    __slots__ = ("is_extended", "media_bytes", "messages", "native", "origins")

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.origins: list[tuple[str, list[str]]] = []
        """Paths by message: its path in the client's request, and those of its content's parts and stored blocks."""
        self.native: list[tuple[str, Block]] = []
        """Blocks of users and tools that have no form in chat completions, by their paths."""
        self.media_bytes = 0
        """Bytes of documents that are no text."""
        self.is_extended = False
        """True if a message has members beyond those of chat completions."""

    def add_system(self, system: str | list[Block], path: str = "system") -> None:
        """Add instructions; raises InvalidRequest."""
        if isinstance(system, str):
            self._append({"role": "system", "content": system}, path, [])
            return
        parts = [self._text(block, f"{path}[{index}]") for index, block in enumerate(system)]
        if parts:
            self._append({"role": "system", "content": parts}, path, _indexed(path, range(len(parts))))

    def add(self, turn: MessageTurn, index: int) -> None:
        """Add a turn; raises InvalidRequest."""
        path, content = f"messages[{index}]", turn.content
        if isinstance(content, str):
            self._append({"role": turn.role, "content": content}, path, [])
        elif turn.role == "user":
            self._add_user(content, path)
        elif turn.role == "assistant":
            self._add_assistant(content, path)
        else:
            self.add_system(content, f"{path}.content")

    def _append(self, message: dict[str, Any], path: str, parts: list[str]) -> None:
        self.messages.append(message)
        self.origins.append((path, parts))

    def _add_user(self, blocks: list[Block], path: str) -> None:
        parts: list[Block] = []
        paths: list[str] = []
        stored: list[Block] = []
        num_results = 0
        for index, block in enumerate(blocks):
            where = f"{path}.content[{index}]"
            kind = _kind(block, where)
            if kind == "tool_result":
                images = self._add_result(block, where)
                parts += images
                paths += [f"{where}.content[{image[TOOL_RESULT]['index']}]" for image in images]
                num_results += 1
            elif (part := self._part(kind, block, where)) is not None:
                parts.append(part)
                paths.append(where)
            else:
                stored.append(self._native_block(block, len(parts) + len(stored), where))
                paths.append(where)
        if not parts and not stored and num_results:
            return
        message: dict[str, Any] = {"role": "user", "content": parts or ""}
        if stored:
            message[CONTENT_BLOCKS] = stored
        self._append(message, path, paths)

    def _native_block(self, block: Block, index: int, path: str) -> Block:
        self.is_extended = True
        self.native.append((path, block))
        return placed(index, block)

    def _part(self, kind: str, block: Block, path: str) -> Block | None:
        """Return a block as a part of a chat message; None for one that has no such form."""
        if kind == "text":
            return self._text(block, path)
        source = block.get("source")
        source = source if isinstance(source, dict) else {}
        if kind == "image" and source.get("type") != _UNSERVED_SOURCE:
            url = _image_url(checked(block, ImageBlock, path).source, f"{path}.source")
            return self._with_rest({"type": "image_url", "image_url": {"url": url}}, block, "image")
        if kind == "document" and source.get("type") == "base64" and source.get("media_type") == _PDF:
            return self._file(block, source, path)
        if kind == "thinking":
            checked(block, ReasoningBlock, path)
        return None

    def _file(self, block: Block, source: dict[str, Any], path: str) -> Block:
        data, title = source.get("data"), block.get("title")
        if not isinstance(data, str):
            raise wrong_member(f"{path}.source.data", "be a string")
        name = title if isinstance(title, str) and title else "document.pdf"
        part: Block = {"type": "file", "file": {"filename": name, "file_data": f"data:{_PDF};base64,{data}"}}
        rest = _rest(block, "document")
        self.is_extended = True
        self.media_bytes += len(data)
        part[DOCUMENT] = {**rest, **({"title": title} if title else {})}
        return part

    def _text(self, block: Block, path: str) -> Block:
        if type(block.get("text")) is not str or block.get("type") != "text":
            _kind(block, path)
            checked(block, TextBlock, path)
        if len(block) == 2:
            return block
        return self._with_rest({"type": "text", "text": block["text"]}, block, "text")

    def _with_rest(self, part: Block, block: Block, kind: str) -> Block:
        """Return the part with the members of the block that it does not stand for."""
        rest = _rest(block, kind)
        if not rest:
            return part
        self.is_extended = True
        return {**rest, **part}

    def _add_result(self, block: Block, path: str) -> list[Block]:
        """Add a tool's output as a message; return the images in it, which only a user's message may have."""
        result = checked(block, ToolResultBlock, path)
        message: dict[str, Any] = {"role": "tool", "tool_call_id": result.tool_use_id, "content": ""}
        images: list[Block] = []
        if isinstance(result.content, str):
            message["content"] = result.content
        elif result.content:
            images = self._take_result(message, result.content, path)
        if result.is_error:
            message["is_error"] = self.is_extended = True
        if rest := _rest(block, "tool_result"):
            self.is_extended = True
            message = {**rest, **message}
        self._append(message, path, [])
        return images

    def _take_result(self, message: dict[str, Any], blocks: list[Block], path: str) -> list[Block]:
        texts: list[Block] = []
        images: list[Block] = []
        stored: list[Block] = []
        for index, block in enumerate(blocks):
            where = f"{path}.content[{index}]"
            part = self._part(_kind(block, where), block, where)
            if part is None or part["type"] == "file":
                stored.append(self._native_block(block, index, where))
            elif part["type"] == "text":
                texts.append(part)
            else:
                images.append({**part, TOOL_RESULT: {"tool_use_id": message["tool_call_id"], "index": index}})
        message["content"] = _content(texts) or ""
        if stored:
            message[CONTENT_BLOCKS] = stored
        self.is_extended = self.is_extended or bool(images)
        return images

    def _add_assistant(self, blocks: list[Block], path: str) -> None:
        texts: list[Block] = []
        calls: list[Block] = []
        reasonings: list[str] = []
        stored: list[Block] = []
        for index, block in enumerate(blocks):
            where = f"{path}.content[{index}]"
            kind = _kind(block, where)
            if kind == "text":
                texts.append(self._text(block, where))
            elif kind == "tool_use":
                calls.append(self._call(block, where))
            elif is_own_reasoning(block):
                reasonings.append(checked(block, ReasoningBlock, where).thinking)
            else:
                stored.append(placed(index, block))
        if _has_text_behind_call(blocks):
            stored = [placed(index, block) for index, block in enumerate(blocks) if not is_own_reasoning(block)]
        message: dict[str, Any] = {"role": "assistant", "content": _content(texts)}
        if reasonings:
            message["reasoning_content"] = "\n\n".join(reasonings)
        if calls:
            message["tool_calls"] = calls
        if stored:
            message[CONTENT_BLOCKS] = stored
            self.is_extended = True
        if len(message) == 2 and message["content"] is None:
            message["content"] = ""
        self._append(message, path, _indexed(f"{path}.content", range(len(blocks))))

    def _call(self, block: Block, path: str) -> Block:
        use = checked(block, ToolUseBlock, path)
        arguments = encoded(block["input"]).decode()
        call = {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}
        return self._with_rest(call, block, "tool_use")


def checked(block: Block, kind: type[_T], path: str) -> _T:
    """Return a block as its type; raises InvalidRequest with the path in the client's request."""
    try:
        return msgspec.convert(block, kind)
    except msgspec.ValidationError as error:
        raise block_fault(str(error), block, path) from None


def _has_text_behind_call(blocks: list[Block]) -> bool:
    """Return whether the order of an assistant's blocks is one that chat completions cannot express."""
    kinds = [block["type"] for block in blocks]
    return "tool_use" in kinds and "text" in kinds[kinds.index("tool_use") :]


def _image_url(source: Base64Source | UrlSource, path: str) -> str:
    if isinstance(source, Base64Source):
        if not source.media_type.startswith("image/"):
            raise wrong_member(f"{path}.media_type", "be the type of an image, such as image/png")
        return f"data:{source.media_type};base64,{source.data}"
    if not source.url.startswith(("https://", "data:image/")):
        raise wrong_member(f"{path}.url", "begin with https://")
    return source.url


def _content(texts: list[Block]) -> str | list[Block] | None:
    if len(texts) == 1 and len(texts[0]) == 2:
        text: str = texts[0]["text"]
        return text
    return texts or None


def _rest(block: Block, kind: str) -> Block:
    known = _MEMBERS[kind]
    if block.keys() <= known:
        return _NOTHING
    return {name: value for name, value in block.items() if name not in known and value not in (None, [], {})}


def _kind(block: Block, path: str) -> str:
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        raise InvalidRequest(f"`{path}.type` is required.", param=f"{path}.type")
    return kind


def _indexed(path: str, indexes: range) -> list[str]:
    return [f"{path}[{index}]" for index in indexes]
