"""Messages about fields of the chat request, in the words of the request that the client sent in another API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import InvalidRequest

_PART_TYPE: Final = re.compile(r"messages\[\d+\]\.content\[\d+\]\.type")

_COUNTS: Final = ("n", "best_of")
"""Fields of chat completions for several answers, of which all but one would be generated, counted and dropped."""


def in_own_words(message: str, field: str, path: str) -> str:
    """Return a message with the client's path in place of a field of the chat request.

    A name that is an English word too, such as `stop`, counts as the field at the beginning and in quotation marks.
    """
    if field == path:
        return message
    name = re.escape(field)
    pattern = rf"^{name}\b|(?<=[`'\"]){name}(?=[`'\"])" if field.isalpha() else rf"(?<![\w.]){name}(?!\w)"
    return re.sub(pattern, lambda _: path, message)


def with_own_kinds(message: str, field: str, kinds: Mapping[str, str]) -> str:
    """Return a message about the type of a content part with the types of the client's API.

    Args:
        message: The message.
        field: Path of the field in the chat request; the message stays as it is unless it is a part's type.
        kinds: Types of the client's API, by those of chat completions.
    """
    if _PART_TYPE.fullmatch(field) is None:
        return message
    return re.sub(r'"(\w+)"', lambda found: f'"{kinds.get(found[1], found[1])}"', message)


def refuse_names_of_chat(document: Mapping[str, Any], own: Mapping[str, str]) -> None:
    """Refuse fields of chat completions that the client's API has under another name, or that it has not.

    Such a field would meet the one that the gateway makes of the client's own.

    Args:
        document: Members of the request that are present.
        own: Names of the client's API, by those of chat completions.

    Raises:
        InvalidRequest: The request has such a field; the message names the one to send.
    """
    for name in own.keys() & document.keys():
        raise InvalidRequest(
            f"`{name}` is not a field of this API. Send `{own[name]}`.", param=name, code="unsupported_parameter"
        )
    for name in _COUNTS:
        if document.get(name, 1) != 1:
            message = f"`{name}` must be 1: this API returns one answer. Send a request for each answer."
            raise InvalidRequest(message, param=name, code="unsupported_parameter")
