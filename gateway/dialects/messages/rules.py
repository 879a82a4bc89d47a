"""Rules of the Messages API's fields, by which faults are worded, and the errors made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gateway.chat.conversion import refused
from gateway.chat.fields.faults import fault_of
from gateway.chat.fields.table import FIELD_RULES, FieldRule, FieldType
from gateway.dialects.messages.schema import MAX_BLOCKS, MAX_MESSAGE_TOOLS, MAX_TURNS
from gateway.errors import InvalidRequest


def _rule(kind: FieldType, must: str | None = None, least: int | None = None, most: int | None = None) -> FieldRule:
    return FieldRule(type=kind, gateway="reads", engine="ignores", must=must, least=least, most=most)


_CONTENT: Final = f"be a string or a list of at most {MAX_BLOCKS} blocks"
_BLOCK_RULES: Final = {
    "type": _rule("string"),
    "text": _rule("string"),
    "thinking": _rule("string"),
    "signature": _rule("string"),
    "id": _rule("string", least=1, most=256),
    "name": _rule("string", "be a string that is not empty"),
    "input": _rule("object"),
    "tool_use_id": _rule("string", least=1, most=256),
    "content": _rule("any", _CONTENT),
    "is_error": _rule("boolean"),
    "source": _rule("object"),
    "source.type": _rule("string", 'be "base64" or "url"'),
    "source.media_type": _rule("string"),
    "source.data": _rule("string"),
    "source.url": _rule("string"),
}
_BLOCKS: Final = ("system[]", "messages[].content[]", "messages[].content[].content[]")
MESSAGE_RULES: Final[Mapping[str, FieldRule]] = {
    **{name: FIELD_RULES[name] for name in ("model", "temperature", "top_p", "top_k", "stream")},
    "messages": _rule("list", least=1, most=MAX_TURNS),
    "messages[]": _rule("object"),
    "messages[].role": _rule("string", 'be "user", "assistant" or "system"'),
    "messages[].content": _rule("any", _CONTENT),
    **{block: _rule("object") for block in _BLOCKS},
    **{f"{block}.{name}": rule for block in _BLOCKS for name, rule in _BLOCK_RULES.items()},
    "system": _rule("any", _CONTENT),
    "max_tokens": _rule("integer", least=0, most=FIELD_RULES["max_tokens"].most),
    "stop_sequences": _rule("list", "be a list of strings"),
    "stop_sequences[]": _rule("string"),
    "metadata": _rule("object"),
    "metadata.user_id": _rule("string", most=512),
    "service_tier": _rule("string"),
    "tools": _rule("list", most=MAX_MESSAGE_TOOLS),
    "tools[]": _rule("object"),
    "tools[].name": _rule("string"),
    "tools[].type": _rule("string"),
    "tools[].description": _rule("string"),
    "tools[].input_schema": _rule("object"),
    "tool_choice": _rule("object"),
    "tool_choice.type": _rule("string", 'be "auto", "any", "tool" or "none"'),
    "tool_choice.name": _rule("string"),
    "tool_choice.disable_parallel_tool_use": _rule("boolean"),
    "thinking": _rule("object"),
    "thinking.type": _rule("string"),
    "thinking.budget_tokens": _rule("integer"),
    "thinking.display": _rule("string"),
    "output_config": _rule("object"),
    "output_config.effort": _rule("string"),
    "output_config.format": _rule("object"),
    "output_config.format.type": _rule("string", 'be "json_schema"'),
    "output_config.format.schema": _rule("object"),
}


def message_fault(report: str, document: object) -> InvalidRequest:
    """Return the error of a field, from the decoder's report about the document."""
    return refused(fault_of(report, document, MESSAGE_RULES))


def block_fault(report: str, block: object, path: str) -> InvalidRequest:
    """Return the error of a member of a block, from the decoder's report about the block at this path."""
    return at_path(refused(fault_of(report, block, _BLOCK_RULES)), lambda inner: f"{path}.{inner}" if inner else path)


def wrong_member(path: str, must: str) -> InvalidRequest:
    """Return the error of a member that must be otherwise."""
    return InvalidRequest(f"`{path}` must {must}.", param=path)


def at_path(error: InvalidRequest, rename: Callable[[str], str]) -> InvalidRequest:
    """Return the error with another path of its field, in the message too."""
    inner = error.param or ""
    path = rename(inner)
    message = error.message
    if inner and f"`{inner}`" in message:
        message = message.replace(f"`{inner}`", f"`{path}`", 1)
    elif inner and message.startswith(inner):
        message = path + message.removeprefix(inner)
    return InvalidRequest(message, param=path or None, code=error.code)
