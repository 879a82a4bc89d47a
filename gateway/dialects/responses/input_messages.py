"""InputMessages: the messages of a chat request, made from the input items of a Responses request.

The model's consecutive items, such as reasoning, text and tool calls, become one assistant message. Items that chat
completions have no words for travel in its member `output_items`, each with its place among the message's own pieces.
A deployment that speaks Responses gets them back where they were.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.schema import OUTPUT_ITEMS
from gateway.dialects.responses.content import chat_content, item_text
from gateway.dialects.responses.field_paths import FieldPaths
from gateway.errors import InvalidRequest

_TELLING: Final = frozenset(
    {
        *("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools", "tool_search_call", "tool_search_output"),
    }
)
"""Types of items that tell how an answer was found; the conversation has its meaning without them."""
_ROLES: Final = frozenset({"user", "system", "developer"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})


class InputMessages:
    """Messages in the making: `add` the items in order, then read `messages`."""

    __slots__ = ("_turn", "has_items", "media_bytes", "messages", "paths", "refusal")

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.paths = FieldPaths()
        """Path of each message in the client's request."""
        self.has_items = False
        """True if a message has items that chat completions have no words for."""
        self.refusal: InvalidRequest | None = None
        """Refusal of a server of chat completions, where the conversation has no meaning without such an item."""
        self.media_bytes = 0
        """Bytes of files."""
        self._turn: dict[str, Any] | None = None
        """Assistant message that further items of the model join."""

    def add_text(self, role: str, text: str, path: str) -> None:
        """Add a message of text alone."""
        self._append({"role": role, "content": text}, path, path)

    def add(self, item: Any, path: str) -> None:
        """Add one input item.

        Raises:
            InvalidRequest: The item is malformed.
        """
        if not isinstance(item, dict):
            raise InvalidRequest(f"`{path}` must be an object.", param=path)
        kind = _or_empty(item, "type")
        if kind == "" and "role" in item:
            kind = "message"
        if not isinstance(kind, str) or not kind:
            raise InvalidRequest(f"`{path}.type` is required.", param=f"{path}.type")
        if kind == "message":
            self._add_message(item, path)
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": _or_empty(item, "arguments")}
            self._add_call({"id": _call_id(item, path), "type": "function", "function": function}, path)
        elif kind == "custom_tool_call":
            custom = {"name": item.get("name"), "input": _or_empty(item, "input")}
            self._add_call({"id": _call_id(item, path), "type": "custom", "custom": custom}, path)
        elif kind in _OUTPUTS:
            content = chat_content(_or_empty(item, "output"), f"{path}.output")
            message = {"role": "tool", "tool_call_id": _call_id(item, path), "content": content}
            self._append(message, path, f"{path}.output")
        elif kind == "reasoning":
            self._add_reasoning(item, path)
        else:
            self._add_item(item, path)

    def _add_message(self, item: dict[str, Any], path: str) -> None:
        role = item.get("role")
        content = item.get("content")
        if role == "assistant":
            self._add_answer(chat_content("" if content is None else content, f"{path}.content"), path)
        elif isinstance(role, str) and role in _ROLES:
            self._append({"role": role, "content": chat_content(content, f"{path}.content")}, path, f"{path}.content")
        else:
            raise InvalidRequest(f"`{path}.role` must be user, assistant, system or developer.", param=f"{path}.role")

    def _add_answer(self, content: Any, path: str) -> None:
        turn = self._turn
        if turn is None or turn.get("content"):
            turn = self._begin_turn(path)
        turn["content"] = content

    def _add_call(self, call: dict[str, Any], path: str) -> None:
        turn = self._turn or self._begin_turn(path)
        calls = turn.setdefault("tool_calls", [])
        self.paths.add_call(len(self.messages) - 1, len(calls), path)
        calls.append(call)

    def _add_reasoning(self, item: dict[str, Any], path: str) -> None:
        """Add reasoning: as text where the item has it, and whole where it is encrypted."""
        text = item_text(item.get("content"))
        if not text and not item.get("encrypted_content"):
            return  # a summary, which is for people
        turn = self._turn
        if turn is None or (turn.get("content") and not turn.get("tool_calls")):
            turn = self._begin_turn(path)
        if text:
            turn["reasoning_content"] = turn.get("reasoning_content", "") + text
        if item.get("encrypted_content"):
            self._add_item(item, path)

    def _add_item(self, item: dict[str, Any], path: str) -> None:
        self.has_items = True
        if item["type"] not in _TELLING and self.refusal is None:
            self.refusal = InvalidRequest(
                f"`{path}.type`: only a deployment of the Responses API can serve '{item['type']:.40}', and this model "
                "has none. Remove the item.",
                param=f"{path}.type",
                code="unsupported_parameter",
            )
        turn = self._turn or self._begin_turn(path)
        at = bool(turn.get("content")) + len(turn.get("tool_calls", ()))
        turn.setdefault(OUTPUT_ITEMS, []).append({"at": at, "item": item})

    def _begin_turn(self, path: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        self._append(message, path, f"{path}.content")
        self._turn = message
        return message

    def _append(self, message: dict[str, Any], path: str, content_path: str) -> None:
        self._turn = None
        content = message["content"]
        if isinstance(content, list):
            self.media_bytes += sum(len(str(part["file"].get("file_data", ""))) for part in content if "file" in part)
        self.messages.append(message)
        self.paths.add_message(path, content_path)


def _or_empty(item: dict[str, Any], name: str) -> Any:
    """Return a member of an item; an empty text where it is absent, null or empty."""
    value = item.get(name)
    return "" if value is None or value in ([], {}) else value


def _call_id(item: dict[str, Any], path: str) -> str:
    """Return the id of a call; raises InvalidRequest without one."""
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidRequest(f"`{path}.call_id` is required.", param=f"{path}.call_id")
    return call_id
