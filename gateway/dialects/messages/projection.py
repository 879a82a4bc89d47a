"""PlainProjection: a chat document with members of the Messages API becomes one that every chat server takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.chat.schema import CONTENT_BLOCKS
from gateway.dialects.messages.conversation import DOCUMENT, TOOL_RESULT
from gateway.dialects.messages.native_blocks import Block, is_reasoning, restored
from gateway.dialects.messages.tools import OWN_TOOLS
from gateway.errors import InvalidRequest
from gateway.http.asgi import Header

STOPS: Final = "stop_sequences"
"""Member of the document with the stop sequences of the client, who wants to know which one ended the answer."""
BETAS: Final = "anthropic_beta"
"""Member of the document with the values of the header `anthropic-beta`."""
NO_EFFECT: Final = frozenset(
    {
        *("cache_control", "context_management", "diagnostics", "inference_geo", "speed", "betas", BETAS, STOPS),
        *("user_profile_id", "workspace_id", "thinking", "output_config", "output_format", OWN_TOOLS),
        *("billing_policy", "fallbacks", "fallback_credit_token"),
    }
)
"""Members of a request that mean something to Anthropic's API only, and whose loss leaves the answer's meaning."""
NEEDED: Final = ("container", "mcp_servers", "thread", "compaction")
"""Members that change an answer, and that only Anthropic's API has."""
_OF_PARTS: Final = frozenset({"cache_control", "citations", "caller", TOOL_RESULT, DOCUMENT})
_OF_MESSAGES: Final = frozenset({"cache_control", "is_error", "toolset_name", CONTENT_BLOCKS})
_OF_TOOLS: Final = frozenset(
    {"cache_control", "defer_loading", "input_examples", "eager_input_streaming", "allowed_callers"}
)
_WITH_STOP: Final = ((b"x-penstock-stop-reason", b"1"),)
"""Request to the bundled engine for `stop_reason` in each choice, which others send by themselves or not at all."""
_LOW_BUDGET: Final = 4096
_HIGH_BUDGET: Final = 16_384
_EFFORTS: Final = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


class PlainProjection:
    """Projection of one request; `refusal` is raised where a part of it needs Anthropic's API."""

    __slots__ = ("_refusal", "headers")
    dialect = "anthropic"
    own_fields = frozenset(
        {
            *NO_EFFECT,
            *NEEDED,
            *(f"messages[].{name}" for name in _OF_MESSAGES),
            *(f"messages[].{place}[].{name}" for place in ("content", "tool_calls") for name in _OF_PARTS),
            *(f"tools[].{name}" for name in _OF_TOOLS),
        }
    )

    def __init__(self, refusal: InvalidRequest | None, *, has_stops: bool) -> None:
        """Create a projection; with `has_stops`, the server is to tell which stop sequence ended the answer."""
        self._refusal = refusal
        self.headers: Sequence[Header] = _WITH_STOP if has_stops else ()

    def plain(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document without members that only Anthropic's API has.

        Raises:
            InvalidRequest: A part of the request needs Anthropic's API.
        """
        if self._refusal is not None:
            raise self._refusal
        found = {name: value for name, value in document.items() if name not in NO_EFFECT}
        found["messages"] = [_plain_message(message) for message in document["messages"]]
        if "tools" in found:
            found["tools"] = [_without(tool, _OF_TOOLS) for tool in found["tools"]]
        effort = _effort(document)
        if effort is not None:
            found.setdefault("reasoning_effort", effort)
        return found


def needs_anthropic(block: Block) -> str | None:
    """Return why chat completions cannot express the block of a user or a tool; None if they can."""
    kind, source = block.get("type"), block.get("source")
    kind_of_source = source.get("type") if isinstance(source, dict) else None
    if kind == "document" and kind_of_source in ("text", "content", "base64"):
        return None
    if kind == "search_result" or is_reasoning(block):
        return None
    return "source" if kind in ("document", "image") else "type"


def _plain_message(message: dict[str, Any]) -> dict[str, Any]:
    found = _without(message, _OF_MESSAGES)
    content, stored = message.get("content"), message.get(CONTENT_BLOCKS)
    if isinstance(content, list):
        found = {**found, "content": [_without(part, _OF_PARTS) for part in content]}
    if stored and message["role"] != "assistant":
        found = {**found, "content": _with_documents(message, stored)}
    if "tool_calls" in found:
        found = {**found, "tool_calls": [_without(call, _OF_PARTS) for call in found["tool_calls"]]}
    if message["role"] == "assistant" and found.get("content") is None and not _has_more_than_text(found):
        found = {**found, "content": ""}
    if message.get("is_error"):
        found = {**found, "content": _marked(found["content"])}
    return found


def _has_more_than_text(message: dict[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("reasoning_content"))


def _with_documents(message: dict[str, Any], stored: list[Block]) -> list[Block] | str:
    """Return the content with the documents among the native blocks as text, in their places."""
    content = message["content"]
    texts = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or ())
    parts: list[Block] = []
    for block in restored(texts, [], stored):
        kind = block.get("type")
        if kind == "document":
            parts += _document_parts(block)
        elif kind == "search_result":
            parts.append(_text(block, block.get("content")))
        else:
            parts.append(_without(block, _OF_PARTS))
    if message["role"] == "tool" and all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _document_parts(block: Block) -> list[Block]:
    source = block["source"]
    if source["type"] == "text":
        return [_text(block, source.get("data"))]
    if source["type"] == "content":
        return [_text(block, source.get("content"))]
    data, name = source.get("data"), block.get("title") or "document"
    if str(source.get("media_type", "")).startswith("text/"):
        return [_text(block, data)]
    return [{"type": "file", "file": {"filename": name, "file_data": f"data:{source['media_type']};base64,{data}"}}]


def _text(block: Block, content: Any) -> Block:
    """Return a document's text with its title and context before it."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        content = "\n".join(text for text in texts if isinstance(text, str))
    heads = (block.get(name) for name in ("title", "source", "context"))
    lines = [head for head in heads if isinstance(head, str) and head]
    return {"type": "text", "text": "\n".join([*lines, str(content or "")])}


def _marked(content: Any) -> Any:
    """Return a tool's output that says of itself that the call failed, which chat completions have no member for."""
    if isinstance(content, list):
        return [{"type": "text", "text": "Error:"}, *content]
    return content if content.lower().startswith(("error", "<tool_use_error")) else f"Error: {content}"


def _effort(document: dict[str, Any]) -> str | None:
    """Return the effort of reasoning that the request wants; None where it leaves that to the model."""
    setting, thinking = document.get("output_config"), document.get("thinking")
    effort = setting.get("effort") if isinstance(setting, dict) else None
    if isinstance(effort, str):
        return _EFFORTS.get(effort)
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    if type(budget) is not int:
        return "medium"
    return "low" if budget < _LOW_BUDGET else "medium" if budget < _HIGH_BUDGET else "high"


def _without(value: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    if names.isdisjoint(value):
        return value
    return {name: member for name, member in value.items() if name not in names}
