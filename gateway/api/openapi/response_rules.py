"""Rules of the Responses API that its structs cannot state: input items, and what tools need."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.openapi.components import ABSENT, REF, Schema, forbid_privileged
from gateway.api.openapi.message_rules import bounds_of, given
from gateway.api.openapi.responses_schema import ResponsesFields
from gateway.chat.fields.table import FIELD_RULES

_TEXT: Final[Schema] = {"type": "string"}
_TYPE: Final[Schema] = {"type": "string", "minLength": 1}
_TEXT_PARTS: Final = ["input_text", "output_text", "text", "summary_text", "reasoning_text"]
_OWN_KINDS: Final = [
    *("message", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"),
    *("reasoning", "item_reference"),
]


def add_response_rules(schemas: Schema) -> None:
    """State what a request must have besides the types of its members."""
    schemas["OutputPart"] = _part(_text_rule())
    schemas["ContentPart"] = _part(_text_rule(), _image_rule())
    schemas["InputItem"] = {"anyOf": _items()}
    request = schemas[ResponsesFields.__name__]
    members = request["properties"]
    input_items = {"type": "array", "items": _ref("InputItem"), "minItems": 1, "maxItems": 4096}
    # Reasoning alone is no conversation.
    input_items["contains"] = given("type", {"not": {"const": "reasoning"}})
    members["input"] = {"anyOf": [_TYPE, input_items]}
    members["tools"] = {"type": "array", "items": _tool(), "maxItems": FIELD_RULES["tools"].most}
    members["tool_choice"] = {"anyOf": [{"type": "string", **bounds_of("tool_choice")}, _choice()]}
    members["max_output_tokens"] = {
        "type": "integer",
        "minimum": FIELD_RULES["max_completion_tokens"].least,
        "maximum": FIELD_RULES["max_completion_tokens"].most,
    }
    for name in ("user", "prompt_cache_key", "service_tier"):
        members[name] = {"type": "string", **bounds_of(name)}
    members["text"] = {"type": "object", "properties": {"format": {"type": ["object", "null"]}}}
    for name, allowed in members.items():
        if name not in ("model", "input"):
            members[name] = {"anyOf": [allowed, ABSENT]}
    request["anyOf"] = [{"required": ["input"]}, {"required": ["previous_response_id"]}]
    forbid_privileged(request)


def _items() -> list[Schema]:
    parts = {"type": "array", "items": _ref("ContentPart"), "minItems": 1}
    content = {"anyOf": [_TEXT, parts]}
    output = {"anyOf": [_TEXT, {"type": "array", "items": _ref("OutputPart")}, ABSENT]}
    call_id = {"type": "string", **bounds_of("messages[].tool_calls[].id"), "minLength": 1}
    call = {"call_id": call_id, "name": _TEXT}
    of_model = {"role": {"const": "assistant"}, "content": output}
    return [
        _item(["message"], {"role": {"enum": ["user", "system", "developer"]}, "content": content}),
        _item(["message"], of_model),
        _item(["function_call"], {**call, "arguments": {"anyOf": [_TEXT, ABSENT]}}),
        _item(["custom_tool_call"], {"call_id": call_id}),
        _item(["function_call_output", "custom_tool_call_output"], {"call_id": call_id, "output": output}),
        _item(["reasoning"], {}),
        {"type": "object", "required": ["type"], "properties": {"type": {**_TYPE, "not": {"enum": _OWN_KINDS}}}},
    ]


def _item(kinds: list[str], members: Schema) -> Schema:
    """Return the schema of an item of these types; members that may be absent need not be there."""
    kind = {"anyOf": [{"enum": kinds}, ABSENT]} if kinds == ["message"] else {"enum": kinds}
    properties = {"type": kind, **members}
    required = [name for name, schema in properties.items() if ABSENT not in schema.get("anyOf", ())]
    return {"type": "object", "required": required, "properties": properties}


def _part(*rules: Schema) -> Schema:
    """Return the schema of a part of any type, with the rules of some types."""
    return {"type": "object", "required": ["type"], "properties": {"type": _TYPE}, "allOf": list(rules)}


def _text_rule() -> Schema:
    return {"if": given("type", {"enum": _TEXT_PARTS}), "then": given("text", _TEXT)}


def _image_rule() -> Schema:
    url = {"type": "string", "pattern": "^(https://|data:image/)"}
    members = {"image_url": {"anyOf": [url, {"not": _TEXT}]}}
    return {"if": given("type", {"const": "input_image"}), "then": {"properties": members}}


def _tool() -> Schema:
    name = given("name", {"type": "string", **bounds_of("tools[].function.name")})
    return {
        "type": "object",
        "required": ["type"],
        "properties": {"type": _TYPE},
        "if": given("type", {"const": "function"}),
        # Some clients send tools in the form of chat completions.
        "then": {
            "if": {"required": ["function"]},
            "then": given("function", {"type": "object", **name}),
            "else": name,
        },
    }


def _choice() -> Schema:
    return {"type": "object", "required": ["type"], "properties": {"type": _TYPE}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": REF.format(name=name)}
