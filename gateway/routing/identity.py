"""Identity of a conversation or tenant, the same in every process and after every restart."""

from __future__ import annotations

from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, Message, UserMessage
from gateway.deployments.affinity import NamedSession
from routing_policies.policy.values import StickyBy
from routing_policies.share import stable_key

_MAX_CHARS: Final = 2048
"""Number of characters of the first words that are hashed; enough to distinguish conversations."""


def key_of(request: ChatRequest, tenant: str, by: StickyBy, session: NamedSession | None = None) -> int:
    """Return the key of the tenant or of the conversation: the session that it names, else its user's first words."""
    if by == "tenant":
        return stable_key(tenant)
    if session is not None and session.is_conversation:
        return stable_key(tenant, session.value)
    return stable_key(tenant, request.fields.user or "", _first_words(request.messages))


def _first_words(messages: list[Message]) -> str:
    for message in messages:
        if isinstance(message, UserMessage):
            if isinstance(message.content, str):
                return message.content[:_MAX_CHARS]
            return "".join(part.text for part in message.content if isinstance(part, ChatTextPart))[:_MAX_CHARS]
    return ""
