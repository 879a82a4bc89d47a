"""Rules that a route may add to those of every request: no unknown fields, no images by address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.chat.fields.table import FIELD_RULES
from gateway.chat.request import ChatRequest
from gateway.chat.schema import ImagePart
from gateway.errors import InvalidRequest

_PARENTS: Final = frozenset(path.rpartition(".")[0] for path in FIELD_RULES)
"""Objects whose members the table names; the members of all others are the client's own."""


def refuse_unknown_fields(request: ChatRequest) -> None:
    """Raise InvalidRequest for a field that is not in the field table, at any depth."""
    found = next(_unknown_in(request.document, "", ""), None)
    if found is not None:
        raise InvalidRequest(
            f"`{found}` is not a field of this API; remove it.", param=found, code="unsupported_parameter"
        )


def refuse_addressed_images(request: ChatRequest) -> None:
    """Raise InvalidRequest for an image that is an address, at any message."""
    for number, message in enumerate(request.messages):
        if isinstance(message.content, list):
            for place, part in enumerate(message.content):
                if isinstance(part, ImagePart) and not part.image_url.is_inline:
                    path = f"messages[{number}].content[{place}].image_url.url"
                    raise InvalidRequest(
                        f"`{path}` must begin with data:image/ on this route, which takes no addresses.",
                        param=path,
                        code="unsupported_parameter",
                    )


def _unknown_in(value: Any, path: str, pattern: str) -> Iterator[str]:
    """Yield the paths of members that the table does not name.

    Args:
        value: Value at the path.
        path: Path for the client, such as `messages[3]`.
        pattern: Path in the table, such as `messages[]`.
    """
    if isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _unknown_in(item, f"{path}[{number}]", pattern + "[]")
    elif isinstance(value, dict) and pattern in _PARENTS:
        dot = "." if path else ""
        for name, child in value.items():
            below = pattern + dot + name
            if below not in FIELD_RULES:
                yield f"{path}{dot}{name[:64]}"
            elif isinstance(child, dict | list):
                yield from _unknown_in(child, path + dot + name, below)
