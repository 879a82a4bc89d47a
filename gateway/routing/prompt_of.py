"""Conversion of a chat request to the prompt that a quality prediction reads."""

from __future__ import annotations

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, Message, SystemMessage, UserMessage
from routing_policies.quality.prompt import Prompt


def prompt_of(request: ChatRequest, tenant: str, *, kind: str = "") -> Prompt:
    """Return the last two user messages of a tenant as text, and the size of the rest; `kind` is the route's."""
    messages = request.messages
    user_messages = [message for message in messages if isinstance(message, UserMessage)]
    return Prompt(
        _text(user_messages[-1]) if user_messages else "",
        _text(user_messages[-2]) if len(user_messages) > 1 else "",
        len(user_messages),
        sum([len(_text(message)) for message in messages if message.content]),
        isinstance(messages[0], SystemMessage),
        bool(request.fields.tools),
        kind,
        tenant,
    )


def prompt_text(request: ChatRequest) -> str:
    """Return the last user message as text, the subject of a prediction."""
    last = next((message for message in reversed(request.messages) if isinstance(message, UserMessage)), None)
    return "" if last is None else _text(last)


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join([part.text for part in message.content or () if isinstance(part, ChatTextPart)])
