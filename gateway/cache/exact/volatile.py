"""Volatile requests: those whose answer changes with the time or with the person who sends them.

The exact tier serves equal questions only, so the rules are narrow: `how do I cancel my order` has one answer, but
`where is my order` has one for each user. Of a long text only its first and its last line count. A text that does not
stand alone is read with the user's texts before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from gateway.cache.exact.volatile_text import Volatility, volatility_of
from gateway.cache.similarity.standalone import MAX_CHARS, is_standalone
from gateway.chat.operation import CHAT, COMPLETIONS
from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, FunctionMessage, ToolMessage, UserMessage
from routing_policies.policy.document import Cache
from routing_policies.policy.values import CacheScope

MAX_READ: Final = 600
"""Longest text that is read as a whole, in characters."""
_MAX_LINE: Final = 300
_MAX_TURNS: Final = 4
"""The last texts of the user that are read, where none stands alone."""


def volatile_reason(request: ChatRequest, rule: Cache, tenant: str = "") -> Volatility | None:
    """Return why this request gets no cached response and makes none, or None."""
    if rule.scope == "user":
        return None
    found = volatility(request, sender_of(request, rule, tenant))
    if "time_dependent" in found and rule.time_dependent == "bypass":
        return "time_dependent"
    if "personal" in found and (rule.personal == "bypass" or not request.fields.user):
        return "personal"
    return None


def owner_of(request: ChatRequest, rule: Cache, tenant: str = "") -> CacheScope:
    """Return who may share the response to this request: the rule's scope, or the user for a personal question."""
    if rule.personal != "per_user":
        return rule.scope
    return "user" if "personal" in volatility(request, sender_of(request, rule, tenant)) else rule.scope


def sender_of(request: ChatRequest, rule: Cache, tenant: str) -> str:
    """Return those among whom the results for a text are remembered: a user where responses may be one's own."""
    if rule.scope == "user" or rule.personal == "per_user":
        return f"{tenant}\0{request.fields.user}"
    return "" if rule.scope == "shared" else tenant


def volatility(request: ChatRequest, sender: str = "") -> frozenset[Volatility]:
    """Return on what the answer to a request depends besides its content; `sender` is that of `volatility_of`."""
    found: frozenset[Volatility] = frozenset()
    for text in _texts_read(request, sender):
        found |= volatility_of(_part_read(text), sender)
    return found


def _texts_read(request: ChatRequest, sender: str) -> Iterator[str]:
    """Yield the texts of a request that may be volatile; a tool's result carries what its answer depends on."""
    if request.operation is COMPLETIONS:
        prompt = request.document.get("prompt")
        prompts = prompt if isinstance(prompt, list) else [prompt]
        yield from (text for text in prompts if isinstance(text, str))
    if request.operation is not CHAT or isinstance(request.messages[-1], ToolMessage | FunctionMessage):
        return
    num_read = 0
    for message in reversed(request.messages):
        if type(message) is not UserMessage:
            continue
        text = _text_of(message)
        yield text
        num_read += 1
        # Longer texts do not stand alone, and are not worth remembering.
        if num_read == _MAX_TURNS or (len(text) <= MAX_CHARS and _stands_alone(text, sender)):
            return


def _text_of(message: UserMessage) -> str:
    """Return the text of a message, whatever else it shows."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content if type(part) is ChatTextPart)


@lru_cache(maxsize=2048)
def _stands_alone(text: str, _: str) -> bool:
    return is_standalone(text)


def _part_read(text: str) -> str:
    """Return the text, or of a long one its first and its last line."""
    if len(text) <= MAX_READ:
        return text
    head, tail = text[:_MAX_LINE].lstrip(), text[-_MAX_LINE:].rstrip()
    return f"{head.partition(chr(10))[0]}\n{tail.rpartition(chr(10))[2]}"
