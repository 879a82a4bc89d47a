"""ChatProjection: a chat document with members of the Responses API becomes one that every chat server takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.chat.schema import OUTPUT_ITEMS
from gateway.errors import InvalidRequest
from gateway.http.asgi import Header

REASONING: Final = "reasoning"
"""Member of the document with the settings of reasoning, apart from its effort."""
OWN_FIELDS: Final = frozenset(
    {
        *("include", "truncation", "max_tool_calls", "context_management", "moderation", "prompt_cache_options"),
        *("image", "access_programs"),
    }
)
"""Fields that only Responses has, and whose loss leaves the answer's meaning."""


class ChatProjection:
    """Projection of one request; `refusal` is raised where an item of it needs a deployment of Responses."""

    __slots__ = ("_refusal",)
    dialect = "responses"
    headers: Sequence[Header] = ()
    own_fields = OWN_FIELDS | {REASONING}

    def __init__(self, refusal: InvalidRequest | None) -> None:
        self._refusal = refusal

    def plain(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document for a server of chat completions.

        Raises:
            InvalidRequest: An item of the request needs a deployment of Responses.
        """
        if self._refusal is not None:
            raise self._refusal
        plain = {name: value for name, value in document.items() if name not in OWN_FIELDS and name != REASONING}
        if any(OUTPUT_ITEMS in message for message in document["messages"]):
            plain["messages"] = [found for message in document["messages"] if (found := _plain(message)) is not None]
        return plain


def _plain(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message without the items of Responses; None where nothing is left."""
    if OUTPUT_ITEMS not in message:
        return message
    rest = {name: value for name, value in message.items() if name != OUTPUT_ITEMS}
    return rest if any(value for name, value in rest.items() if name != "role") else None
