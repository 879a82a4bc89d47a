"""Rules of requests that structs cannot state, added to the schemas made from them."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.openapi.components import ABSENT, Schema, forbid_privileged
from gateway.api.openapi.message_rules import given
from gateway.chat.fields.table import FIELD_RULES, PRIVILEGED_FIELDS
from gateway.chat.schema import KNOWN_PARTS, OTHER_PART, ChatFields
from gateway.dialects.completions.schema import CompletionFields
from gateway.dialects.embeddings.schema import EmbeddingFields
from routing_policies.matching import AUTO

_REQUESTS: Final = (ChatFields, CompletionFields, EmbeddingFields)
_NAMING: Final = frozenset({"arguments", "id", "name", "url"})
"""Members that count even as an empty list or object, because they say what their object is."""
_NO_NAME: Final[Schema] = {"enum": [None, ""]}


def allow_absent(schemas: Schema) -> None:
    """Let every optional member of a request be null or empty, which is as good as absent."""
    names, found = [kind.__name__ for kind in _REQUESTS], set[str]()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += _referred(schemas[name])
    for name in found:
        schema = schemas[name]
        for member, allowed in schema.get("properties", {}).items():
            _allow_absent_values(allowed)
            if member not in schema.get("required", ()):
                absent = _NO_NAME if member in _NAMING else ABSENT
                schema["properties"][member] = {"anyOf": [allowed, absent]}
    schemas["Absent"] = {
        "description": "As good as absent: null, or empty.",
        "anyOf": [
            {"enum": [None, "", []]},
            {"type": "object", "maxProperties": 0},
        ],
    }


def _allow_absent_values(schema: Schema) -> None:
    """Let the values of an object with names of the client's choice be absent."""
    for kind in (schema, *schema.get("anyOf", ())):
        if isinstance(kind.get("additionalProperties"), dict) and kind["additionalProperties"]:
            kind["additionalProperties"] = {"anyOf": [kind["additionalProperties"], ABSENT]}


def _referred(schema: Any) -> list[str]:
    """Return the names of the components that a schema refers to, at any depth."""
    if isinstance(schema, dict):
        own = [schema["$ref"].rpartition("/")[2]] if isinstance(schema.get("$ref"), str) else []
        return own + [name for value in schema.values() for name in _referred(value)]
    return [name for value in schema for name in _referred(value)] if isinstance(schema, list) else []


def describe_fields(schemas: Schema) -> None:
    """Tell of each top-level field of the table who acts on it."""
    members = schemas["ChatFields"]["properties"]
    for path, rule in FIELD_RULES.items():
        if path.isidentifier() and path not in PRIVILEGED_FIELDS:
            members[path] = {**members.get(path, {}), "description": rule.meaning}


def add_relations(schemas: Schema) -> None:
    """Add the relations between fields that `gateway.chat.conversion` checks."""
    chat = schemas["ChatFields"]
    chat["properties"]["model"]["examples"] = [AUTO]
    for request in _REQUESTS:
        forbid_privileged(schemas[request.__name__])
    schemas[CompletionFields.__name__]["allOf"] = [_only_with("stream_options", "stream")]
    kind = {"type": "string", "not": {"enum": sorted(KNOWN_PARTS - {OTHER_PART})}}
    schemas["OtherPart"] |= {"required": ["type"], "properties": {"type": kind}}
    is_function = given("type", {"const": "function"})
    for name in ("ChatTool", "ChatToolCall"):
        schemas[name] |= {"if": is_function, "then": given("function", {"not": ABSENT})}
    arguments = schemas["ChatFunctionCall"]["properties"]["arguments"]
    schemas["ChatFunctionCall"]["properties"]["arguments"] = {"anyOf": [arguments, {"type": "null"}]}
    chat["allOf"] = [_only_with("top_logprobs", "logprobs"), _only_with("stream_options", "stream")]
    schemas["AssistantMessage"]["anyOf"] = [
        given("content", {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1}]}),
        given("tool_calls", {"type": "array", "minItems": 1}),
        given("function_call", {"type": "object", "not": ABSENT}),
        given("refusal", {"type": "string", "minLength": 1}),
    ]


def _only_with(name: str, switch: str) -> Schema:
    """Allow `name` only where `switch` is true."""
    return {"if": given(name, {"not": ABSENT}), "then": given(switch, {"const": True})}
