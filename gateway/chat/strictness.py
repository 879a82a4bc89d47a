"""Rules that a route may add to those of every request: no unknown fields, no images by address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.chat.fields.table import FIELD_RULES
from gateway.chat.request import ChatRequest
from gateway.errors import InvalidRequest

_PARENTS: Final = frozenset(path.rpartition(".")[0] for path in FIELD_RULES)
"""Objects whose members the table names; the members of all others are the client's own."""

_INLINE: Final = "data:"


def refuse_unknown_fields(request: ChatRequest) -> None:
    """Raise InvalidRequest for a field, at any depth, that is in no table of the client's API."""
    own = request.operation.own_fields if request.projection is None else request.projection.own_fields
    found = next(_unknown_in(request.document, own), None)
    if found is not None:
        raise InvalidRequest(
            f"`{found}` is not a field of this API; remove it.", param=found, code="unsupported_parameter"
        )


def refuse_addressed_images(request: ChatRequest) -> None:
    """Raise InvalidRequest for an image that is an address, in the words of any API, at any depth of a message."""
    path = next(_addresses_in(request.document.get("messages"), "messages"), None)
    if path is not None:
        raise InvalidRequest(
            f"`{path}` must begin with data:image/ on this route, which takes no addresses.",
            param=path,
            code="unsupported_parameter",
        )


def _addresses_in(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of images that are addresses."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _addresses_in(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        if (name := _address_of(value)) is not None:
            yield f"{path}.{name}"
        for name, child in value.items():
            if isinstance(child, dict | list):
                yield from _addresses_in(child, f"{path}.{name[:64]}")


def _address_of(part: dict[str, Any]) -> str | None:
    """Return the path of the address of an image below its part; None for any other part."""
    image, source = part.get("image_url"), part.get("source")
    if isinstance(image, str):  # as in Responses
        return None if image.startswith(_INLINE) else "image_url"
    if isinstance(image, dict) and isinstance(url := image.get("url"), str):
        return None if url.startswith(_INLINE) else "image_url.url"
    if part.get("type") == "image" and isinstance(source, dict) and source.get("type") == "url":  # as in Messages
        return None if str(source.get("url")).startswith(_INLINE) else "source.url"
    return None


def _unknown_in(value: Any, own: frozenset[str], path: str = "", pattern: str = "") -> Iterator[str]:
    """Yield the paths of members that neither the table nor the client's API names.

    Args:
        value: Value at the path.
        own: Paths of the members of the client's API, with all that is in them.
        path: Path for the client, such as `messages[3]`.
        pattern: Path in the table, such as `messages[]`.
    """
    if isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _unknown_in(item, own, f"{path}[{number}]", pattern + "[]")
    elif isinstance(value, dict) and pattern in _PARENTS:
        dot = "." if path else ""
        for name, child in value.items():
            below = pattern + dot + name
            if below in own:
                continue
            if below not in FIELD_RULES:
                yield f"{path}{dot}{name[:64]}"
            elif isinstance(child, dict | list):
                yield from _unknown_in(child, own, path + dot + name, below)
