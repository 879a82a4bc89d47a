"""Fingerprints: when two requests must get the same answer, and when they differ in nothing but their last words."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from gateway.cache.standalone import is_standalone
from gateway.chat_fields import TextPart, UserMessage
from gateway.request import ChatRequest
from routing_policies.document import CacheHistory, CacheScope

DIGEST_BYTES: Final = 20

SHAPELESS: Final = frozenset(
    {"model", "stream", "stream_options", "user", "metadata", "prompt_cache_key", "service_tier", "store"}
)
"""Fields that say how an answer travels, who pays for it or who asked, and nothing about what it says.

`model` is in the fingerprint as the route's candidates: two aliases of one route get the same answers.
"""

INSTRUCTING: Final = frozenset({"system", "developer"})
"""Roles whose messages hold for whatever is asked."""

_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """Digests of one request in one scope."""

    exact: bytes
    """Equal for requests that mean the same to the last character."""
    context: bytes
    """Equal for requests that differ in their last user text only: system prompt, history, tools and all are equal.

    Where the policy relaxes history, texts that stand alone are in a context of instructions without history.
    """
    text: str | None
    """That last user text; None where there is none alone: an image, an audio, a tool's result."""


def fingerprint(
    request: ChatRequest, *, scope: bytes, candidates: bytes, history: CacheHistory = "exact"
) -> Fingerprint | None:
    """The request's fingerprint; None for one whose numbers JSON cannot carry exactly.

    `scope` keeps apart who may not share answers (see `scope_of`), `candidates` which models may give them.
    """
    shaping = {name: value for name, value in request.document.items() if name not in SHAPELESS and value is not None}
    text = last_user_text(request)
    messages: list[Any] = shaping.pop("messages")
    try:
        frame = _digest(scope, candidates, _encoder.encode(shaping), _encoder.encode(messages[:-1]))
        last = _encoder.encode(messages[-1])
    except (OverflowError, TypeError):  # an integer beyond 64 bits in a field that is not ours
        return None
    exact = _digest(frame, last)
    if text is None:
        return Fingerprint(exact, exact, None)
    around = {name: value for name, value in messages[-1].items() if name != "content"}
    kind = b"text"
    if history == "standalone" and _is_all_text(messages[:-1]) and is_standalone(text):
        instructions = [message for message in messages if message["role"] in INSTRUCTING]
        frame = _digest(scope, candidates, _encoder.encode(shaping), _encoder.encode(instructions))
        kind = b"standalone"
    return Fingerprint(exact, _digest(frame, kind, _encoder.encode(around)), text)


def last_user_text(request: ChatRequest) -> str | None:
    """What the person said last, when that is the last message and nothing but text."""
    last = request.messages[-1]
    if type(last) is not UserMessage:
        return None
    if isinstance(last.content, str):
        return last.content
    parts = last.content
    return "\n".join(part.text for part in parts if type(part) is TextPart) if _is_text(parts) else None


def scope_of(rule: CacheScope, *, tenant: str, user: str | None) -> bytes | None:
    """What keeps answers of different owners apart; None where the rule wants a user and the request names none."""
    if rule == "shared":
        return b"shared"
    if rule == "tenant":
        return b"tenant\0" + tenant.encode()
    return None if not user else b"user\0" + tenant.encode() + b"\0" + user.encode()


def stream_shape(request: ChatRequest) -> bytes:
    """Empty for a plain answer; streams of one shape are the same bytes."""
    if not request.stream:
        return b""
    options = request.fields.stream_options
    return b"stream" if options is None else b"stream" + _encoder.encode(options)


def _is_text(parts: list[Any]) -> bool:
    return all(type(part) is TextPart for part in parts)


def _is_all_text(messages: list[Any]) -> bool:
    """Nothing in the history that a question could be about without a word of it: no image, no sound, no file."""
    contents = (message.get("content") for message in messages)
    return not any(part["type"] != "text" for parts in contents if isinstance(parts, list) for part in parts)


def _digest(*parts: bytes) -> bytes:
    """Lengths go in too, so that no two lists of parts look alike."""
    hasher = blake2b(digest_size=DIGEST_BYTES, person=b"penstock-answer")
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()
