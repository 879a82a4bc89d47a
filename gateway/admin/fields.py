"""From a submitted JSON object to a typed one."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequest
from gateway.revisions.revision import MAX_REASON_CHARS

S = TypeVar("S", bound=msgspec.Struct)

Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARS)]
Seconds = Annotated[float, Meta(gt=0.0, le=315_360_000.0)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}(?!\n)$",
        description="1 to 64 of letters, digits and . _ @ + -, starting with a letter or digit",
    ),
]
_NO_FIELD: Final = "$"


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what is submitted."""


def fill(form: type[S], document: dict[str, Any]) -> S:
    """The form; raises InvalidRequest, which names the field."""
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.")
        place = field if field and field != _NO_FIELD else None
        raise InvalidRequest(f"{f'{place}: ' if place else ''}{said}.", param=place) from None
