"""Fingerprint: digests of what two requests must share for one response, and of all but their last user text."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from gateway.cache.similarity.standalone import is_standalone
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.chat.schema import CONTENT_BLOCKS, OUTPUT_ITEMS, ChatTextPart, UserMessage
from gateway.util.ordered_json import WIDE, encode_narrow, encode_ordered
from routing_policies.policy.values import CacheHistory, CacheScope

DIGEST_BYTES: Final = 20

SHAPELESS: Final = frozenset(
    {
        *("model", "stream", "stream_options", "user", "metadata", "prompt_cache_key", "service_tier", "store"),
        "prediction",
    }
)
"""Fields for the transport, the payer or the sender of a response, without effect on its content.

`model` is in the fingerprint as the route's candidates: two aliases of one route get the same answers. A `prediction`
makes an answer faster, and does not change it.
"""

INSTRUCTING: Final = frozenset({"system", "developer"})
"""Roles whose messages hold for every question."""


_LONG_CHARS: Final = 64 * 1024
"""Length beyond which the last text is digested without the escapes of JSON."""


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """The digests of one request in one scope."""

    exact: bytes
    """Digest of the whole content: equal for requests with equal content."""
    context: bytes
    """Digest of the content without the last user text: system prompt, history, tools and all else.

    Where the policy relaxes history, texts that stand alone are in a context of instructions without history.
    """
    text: str | None
    """The last user text; None where it is not text alone: an image, an audio, a tool's result."""


class Outline:
    """The digests of one request apart from scope and candidates, which take time in proportion to its length."""

    __slots__ = ("_encode", "around", "frame", "instructions", "last", "shaping", "text")

    def __init__(self, request: ChatRequest) -> None:
        """Digest a request's content. Raises OverflowError or TypeError for a number that JSON cannot carry exactly."""
        document = request.document
        shaping = {name: value for name, value in document.items() if name not in SHAPELESS and value is not None}
        encode = self._encode = encode_narrow if request.raw.count(b":") <= WIDE else encode_ordered
        self.instructions: bytes | None = None
        """The digest of the instructing messages; None until `stand_alone` finds a text that stands alone."""
        if request.operation is not CHAT:
            self.text = None
            self.shaping = self.around = encode(shaping)
            self.frame, self.last = _digest(request.operation.path, self.shaping), b""
            return
        messages: list[Any] = shaping.pop("messages")
        self.text = last_user_text(request)
        self.shaping = encode(shaping)
        self.frame = _digest(self.shaping, encode(messages[:-1]))
        around = {name: value for name, value in messages[-1].items() if name != "content"}
        self.around = encode(around)
        content = messages[-1].get("content")
        if isinstance(content, str) and len(content) > _LONG_CHARS:
            self.last = _digest(self.around, content.encode())  # escaping holds the interpreter's lock too long
        else:
            self.last = _digest(encode(messages[-1]))

    def stand_alone(self, request: ChatRequest) -> bytes | None:
        """Return the digest of a context without history, or None where the last text may depend on history."""
        if self.instructions is None and self.text is not None:
            messages = request.document["messages"]
            if is_standalone(self.text) and _is_all_text(messages[:-1]):
                instructing = [message for message in messages if message["role"] in INSTRUCTING]
                self.instructions = _digest(self.shaping, self._encode(instructing))
        return self.instructions


def outline_of(request: ChatRequest) -> Outline | None:
    """Return the request's outline, made once and stored with it; None for numbers that JSON cannot carry exactly.

    Takes milliseconds for a megabyte: of a long request make it on a thread, before a fingerprint is needed.
    """
    if request.outline is None:
        try:
            request.outline = Outline(request)
        except (OverflowError, TypeError):  # an integer beyond 64 bits in a field that is not ours
            request.outline = _NO_OUTLINE
    return request.outline if isinstance(request.outline, Outline) else None


_NO_OUTLINE: Final = object()


def fingerprint(
    request: ChatRequest, *, scope: bytes, candidates: bytes, history: CacheHistory = "exact"
) -> Fingerprint | None:
    """Return the request's fingerprint, or None where its numbers are beyond what JSON carries exactly.

    Args:
        request: The request.
        scope: Separates callers that may not share responses; see `scope_of`.
        candidates: Models that may answer.
        history: Whether a text that stands alone is compared across conversations.
    """
    outline = outline_of(request)
    if outline is None:
        return None
    exact = _digest(scope, candidates, outline.frame, outline.last)
    if outline.text is None:
        return Fingerprint(exact, exact, None)
    frame, kind = outline.frame, b"text"
    if history == "standalone" and (instructions := outline.stand_alone(request)) is not None:
        frame, kind = instructions, b"standalone"
    return Fingerprint(exact, _digest(scope, candidates, frame, kind, outline.around), outline.text)


def last_user_text(request: ChatRequest) -> str | None:
    """Return the last message's text, when it is a user's and nothing but text."""
    last = request.messages[-1]
    if type(last) is not UserMessage:
        return None
    if isinstance(last.content, str):
        return last.content
    parts = last.content
    return "\n".join(part.text for part in parts if type(part) is ChatTextPart) if _is_text(parts) else None


def scope_of(rule: CacheScope, *, tenant: str, user: str | None) -> bytes | None:
    """Return the value that separates owners of responses; None where the rule needs a user and there is none."""
    if rule == "shared":
        return b"shared"
    if rule == "tenant":
        return b"tenant\0" + tenant.encode()
    return None if not user else b"user\0" + tenant.encode() + b"\0" + user.encode()


def stream_shape(request: ChatRequest) -> bytes:
    """Return a description of the response's form: empty for a plain one; streams of one shape are equal bytes."""
    if not request.stream:
        return b""
    options = request.fields.stream_options
    return b"stream" if options is None else b"stream" + encode_narrow(options)


def _is_text(parts: list[Any]) -> bool:
    return all(type(part) is ChatTextPart for part in parts)


def _is_all_text(messages: list[Any]) -> bool:
    """Return whether the history has nothing that a question may be about without words: image, sound or file."""
    if any(CONTENT_BLOCKS in message or OUTPUT_ITEMS in message for message in messages):
        return False
    contents = (message.get("content") for message in messages)
    return not any(part["type"] != "text" for parts in contents if isinstance(parts, list) for part in parts)


def _digest(*parts: bytes) -> bytes:
    """Return the digest of some parts and their lengths, so that no two lists of parts are alike."""
    hasher = blake2b(digest_size=DIGEST_BYTES, person=b"penstock-answer")
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()
