"""Conversion of a submitted JSON object to a typed one."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequest
from gateway.policies.revision import MAX_REASON_CHARS

S = TypeVar("S", bound=msgspec.Struct)

_ONE_LINE: Final = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*(?!\n)$"
_IN_ONE_LINE: Final = "text in one line, without control characters"
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARS, pattern=_ONE_LINE, description=_IN_ONE_LINE)]
"""Reason for a change that needs one."""
Remark = Annotated[str, Meta(max_length=MAX_REASON_CHARS, pattern=_ONE_LINE, description=_IN_ONE_LINE)]
"""Reason for a change that may go without."""
Seconds = Annotated[float, Meta(gt=0.0, le=315_360_000.0)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}(?!\n)$",
        description="1 to 64 of letters, digits and . _ @ + -, starting with a letter or digit",
    ),
]
_NO_FIELD: Final = "$"
_LENGTH: Final = re.compile(r"`str` of length (>=|<=) (\d+)")
_BOUNDS: Final = {">=": "at least", "<=": "at most"}


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of submitted documents."""


def fill(form: type[S], document: dict[str, Any]) -> S:
    """Convert the document to a form. Raises InvalidRequest, which names the field."""
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.")
        place = field if field and field != _NO_FIELD else None
        message = _in_words(message, get_type_hints(form, include_extras=True).get(field))
        raise InvalidRequest(f"{f'{place}: ' if place else ''}{message}.", param=place) from None


def _in_words(message: str, kind: Any) -> str:
    """Reword a message without msgspec's types and patterns, which mean little to people."""
    wanted = _description(kind) if " matching regex " in message else None
    message = message if wanted is None else f"Expected {wanted}"
    message = _LENGTH.sub(lambda found: f"{_BOUNDS[found[1]]} {found[2]} characters", message)
    return message[:1].lower() + message[1:] if kind is not None else message


def _description(kind: Any) -> str | None:
    """Return the description of a type, or of a type that it is made of."""
    for part in get_args(kind):
        found = part.description if isinstance(part, Meta) else _description(part)
        if found:
            return str(found)
    return None
