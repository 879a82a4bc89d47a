"""What tells a conversation or a tenant apart, the same in every process and after every restart."""

from __future__ import annotations

from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, Message, UserMessage
from routing_policies.policy.document import StickyBy
from routing_policies.share import stable_key

_MAX_CHARS: Final = 2048
"""Of the first words; that is enough to tell conversations apart."""


def key_of(request: ChatRequest, tenant: str, by: StickyBy) -> int:
    """Of the tenant, or of the conversation: by the client's cache key, else by its user's first words."""
    if by == "tenant":
        return stable_key(tenant)
    fields = request.fields
    if fields.prompt_cache_key is not None:
        return stable_key(tenant, fields.prompt_cache_key)
    return stable_key(tenant, fields.user or "", _first_words(request.messages))


def _first_words(messages: list[Message]) -> str:
    for message in messages:
        if isinstance(message, UserMessage):
            if isinstance(message.content, str):
                return message.content[:_MAX_CHARS]
            return "".join(part.text for part in message.content if isinstance(part, ChatTextPart))[:_MAX_CHARS]
    return ""
