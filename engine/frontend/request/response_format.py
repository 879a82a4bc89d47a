"""Member `response_format` of a request: the required form of the answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from engine.frontend.fields.table import bounds
from engine.frontend.request.errors import invalid_value
from engine.frontend.request.json_schemas import check_schema

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Member `response_format.json_schema`."""

    name: Annotated[str, bounds("response_format.json_schema.name")]
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Member `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON schema of the answer; None: any text."""
        if self.type == "text":
            return None
        return (self.json_schema.schema if self.json_schema is not None else None) or _ANY_OBJECT

    @property
    def is_strict(self) -> bool:
        """True if a keyword that cannot be enforced is refused instead of dropped."""
        return self.json_schema is not None and self.json_schema.strict is True


def check_response_format(response_format: ResponseFormat | None) -> None:
    """Raise ApiError (400) for a wrong combination of members, a wrong name or a wrong schema."""
    if response_format is None:
        return
    named = response_format.json_schema
    if (named is not None) != (response_format.type == "json_schema"):
        where = "response_format.json_schema"
        raise invalid_value(where, f"`{where}` is required with type json_schema, and must not be sent with another.")
    if named is not None and named.schema is not None:
        check_schema(named.schema, "response_format", is_strict=named.strict is True)
