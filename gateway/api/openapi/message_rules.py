"""Rules of the Messages API that its structs cannot state: content by role, and what tools need."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.openapi.components import REF, Schema, forbid_privileged, ref
from gateway.chat.fields.table import FIELD_RULES
from gateway.dialects.messages.schema import (
    MAX_BLOCKS,
    CountTokensFields,
    ImageBlock,
    MessageFields,
    MessageTool,
    MessageToolChoice,
    MessageTurn,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

MESSAGE_BLOCKS: Final = (TextBlock, ImageBlock, ToolUseBlock, ToolResultBlock, ReasoningBlock)
_TYPED: Final[Schema] = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "minLength": 1}},
}
_NOTHING: Final[Schema] = {"anyOf": [{"enum": [None, []]}, {"type": "object", "maxProperties": 0}]}


def add_message_rules(schemas: Schema) -> None:
    """State what a request must have besides the types of its members."""
    schemas[MessageTurn.__name__]["anyOf"] = [
        _turn("user", _with_images(_block((TextBlock, ReasoningBlock, ToolResultBlock)))),
        _turn("assistant", _block((TextBlock, ToolUseBlock))),
        _turn("system", ref(TextBlock)),
    ]
    stored = given("source", {"type": "object", **given("type", {"const": "file"})})
    schemas["UserImage"] = {"anyOf": [stored, ref(ImageBlock)]}
    output = _with_images(_block((TextBlock, ReasoningBlock)))
    schemas[ToolResultBlock.__name__]["properties"]["content"] = {
        "anyOf": [{"type": "string"}, _listed(output), {"type": "null"}]
    }
    schemas["Base64Source"]["properties"]["media_type"]["pattern"] = "^image/"
    schemas["UrlSource"]["properties"]["url"]["pattern"] = "^(https://|data:image/)"
    own_type = {"type": "string", "minLength": 1, "not": {"const": "custom"}}
    function = {"name": {"type": "string", **bounds_of("tools[].function.name")}, "input_schema": {"type": "object"}}
    schemas[MessageTool.__name__]["anyOf"] = [
        {"required": [*function], "properties": function},
        {"required": ["type"], "properties": {"type": own_type, "input_schema": {"type": "null"}}},
    ]
    schemas[MessageToolChoice.__name__] |= {
        "if": given("type", {"const": "tool"}),
        "then": given("name", {"type": "string", "minLength": 1}),
    }
    for kind in (CountTokensFields, MessageFields):
        schema = schemas[kind.__name__]
        members = schema["properties"]
        forbid_privileged(schema)
        members["system"] = {"anyOf": [{"type": "string"}, _listed(ref(TextBlock)), {"type": "null"}]}
        if "stop_sequences" in members:
            stop = {"type": "string", **bounds_of("stop[]")}
            members["stop_sequences"] = {"type": "array", "items": stop, "maxItems": FIELD_RULES["stop"].most}
            members["max_tokens"]["maximum"] = FIELD_RULES["max_tokens"].most
        for member, allowed in members.items():
            if member not in schema["required"]:
                members[member] = {"anyOf": [allowed, _NOTHING]}


def _with_images(block: Schema) -> Schema:
    """Return the schema of a block that may be an image, or a document with its data."""
    image = {"$ref": REF.format(name="UserImage")}
    pdf: Schema = {"type": "object", "required": ["type", "media_type"]}
    pdf["properties"] = {"type": {"const": "base64"}, "media_type": {"const": "application/pdf"}}
    is_pdf = {"required": ["type", "source"], "properties": {"type": {"const": "document"}, "source": pdf}}
    rules = [
        {"if": given("type", {"const": "image"}), "then": image},
        {"if": is_pdf, "then": given("source", given("data", {"type": "string"}))},
    ]
    return block | {"allOf": [*block["allOf"], *rules]}


def _block(kinds: tuple[type, ...]) -> Schema:
    """Return the schema of a block of any type, with the members that these types have."""
    tags = {kind: str(kind.__struct_config__.tag) for kind in kinds}  # type: ignore[attr-defined]
    return _TYPED | {"allOf": [{"if": given("type", {"const": tag}), "then": ref(kind)} for kind, tag in tags.items()]}


def _turn(role: str, block: Schema) -> Schema:
    content = {"anyOf": [{"type": "string"}, _listed(block)]}
    return {"properties": {"role": {"const": role}, "content": content}}


def _listed(item: Schema) -> Schema:
    return {"type": "array", "items": item, "maxItems": MAX_BLOCKS}


def given(name: str, schema: Schema) -> Schema:
    """Return the rule that an object has a member, and that it follows a schema."""
    return {"required": [name], "properties": {name: schema}}


def bounds_of(path: str) -> dict[str, Any]:
    """Return the bounds of a string of the field table."""
    rule = FIELD_RULES[path]
    found = {"minLength": rule.least, "maxLength": rule.most, "pattern": rule.pattern}
    return {name: value for name, value in found.items() if value is not None}
