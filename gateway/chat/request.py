"""ChatRequest: a chat completion request, parsed and checked once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.chat.absent import without_absent
from gateway.chat.item_limits import item_limits
from gateway.chat.json_members import may_escape_a_name, with_members, without_members
from gateway.chat.member_spans import MemberSpans
from gateway.chat.operation import CHAT, Operation
from gateway.chat.schema import (
    IN_WORDS,
    MAX_MESSAGES,
    PRIVILEGED_FIELDS,
    AssistantMessage,
    AudioPart,
    ChatFields,
    ChatStreamOptions,
    ImagePart,
    Message,
)
from gateway.chat.strict_json import JsonGuard
from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.util.header_values import listed

_MODEL_VALUE: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_MISSING_FIELD: Final = re.compile(r"missing required field `([^`]+)`")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]+)`")
_INTEGER_FIELDS: Final = ("best_of", "max_completion_tokens", "max_tokens", "n", "seed", "top_k", "top_logprobs")
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Fields that bound the length of an answer; servers reject requests in which they differ."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MEDIA_TEXT_BYTES: Final = 1024
"""Bytes of text that one image or audio part counts for; its encoded size is no measure of its tokens."""


class ChatRequest:
    """A request as the client sent it: raw bytes, JSON document and typed fields. Never changed in place."""

    __slots__ = (
        *("document", "fields", "max_output_tokens", "messages", "model", "num_choices", "operation", "outline"),
        *("_spans", "raw", "stream", "text_bytes"),
    )

    def __init__(
        self,
        raw: bytes,
        document: dict[str, Any],
        fields: ChatFields,
        *,
        num_text_bytes: int | None = None,
        spans: MemberSpans | None = None,
        operation: Operation = CHAT,
    ) -> None:
        """Wrap a parsed request.

        Args:
            raw: Body as the client sent it.
            document: Members of the body.
            fields: Typed members.
            num_text_bytes: Value of `text_bytes` where the caller has computed it.
            spans: Positions of the known members of a long body, which is too long to be searched for them.
            operation: What the request wants from a model; `raw` has the form of that endpoint.
        """
        self.operation = operation
        self._spans = spans
        self.raw = raw
        self.document = document
        self.fields = fields
        self.model = fields.model
        """Model name in the request: an alias or a deployment's own model."""
        self.messages = fields.messages
        """Conversation of at least one message."""
        self.stream = fields.stream is True
        """True if the answer is to be sent as server-sent events."""
        self.text_bytes = text_bytes(raw, fields.messages) if num_text_bytes is None else num_text_bytes
        """Bytes of the body that are text for the model, at least 1."""
        self.num_choices = fields.n or 1
        """Number of answers requested."""
        self.max_output_tokens = fields.max_completion_tokens or fields.max_tokens
        """Client's limit for one answer, in tokens; the newer field takes precedence, None when neither is set."""
        self.outline: object | None = None
        """Value that the cache derived from the request; None until it has done so."""

    def body_for(self, model: str) -> bytes:
        """Return the body with `model` as model name; the raw bytes when equal, else with only the name replaced."""
        if model == self.fields.model:
            return self.raw
        raw = self.raw
        if self._spans is not None:
            return self._spans.edited(raw, {"model": model})[0]
        match = _MODEL_VALUE.search(raw) if raw.count(b'"model"') == 1 else None
        if match is not None and _is_top_level(raw, match):
            return b"".join((raw[: match.start(1)], msgspec.json.encode(model), raw[match.end(1) :]))
        return with_members(raw, {"model": model})

    def with_max_tokens(self, limit: int) -> ChatRequest:
        """Return the request with an answer of at most `limit` tokens, in each field that bounds it.

        A `min_tokens` above the limit is lowered with it.
        """
        fields = self.fields
        names = [name for name in _LIMITS if getattr(fields, name) is not None] or [_LIMITS[0]]
        changes = dict.fromkeys(names, limit)
        least = self.document.get("min_tokens")
        lowered = {"min_tokens": limit} if type(least) is int and least > limit else {}
        return self._changed({**changes, **lowered}, msgspec.structs.replace(fields, **changes))

    def with_logprobs(self, num_top: int) -> ChatRequest:
        """Return the request with log probabilities of each token and of its `num_top` most likely alternatives."""
        wanted = {"logprobs": True, "top_logprobs": num_top}
        return self._changed(wanted, msgspec.structs.replace(self.fields, **wanted))

    def as_stream(self) -> ChatRequest:
        """Return the request as a streamed one whose stream ends with its usage."""
        wanted = {"stream": True, "stream_options": {"include_usage": True}}
        fields = msgspec.structs.replace(self.fields, stream=True, stream_options=ChatStreamOptions(include_usage=True))
        return self._changed(wanted, fields)

    def with_messages(self, messages: list[dict[str, Any]]) -> ChatRequest:
        """Return the request with another conversation, which must be valid."""
        fields = msgspec.structs.replace(self.fields, messages=msgspec.convert(messages, list[Message]))
        return self._changed({"messages": messages}, fields)

    def _changed(self, changes: dict[str, Any], fields: ChatFields) -> ChatRequest:
        """Return the request with other top-level members; all others keep the client's spelling."""
        raw, spans = edited_body(self.raw, self._spans, changes)
        text = None
        if fields.messages is self.messages:
            text = max(1, self.text_bytes + len(raw) - len(self.raw))
        document = {**self.document, **changes}
        return ChatRequest(raw, document, fields, num_text_bytes=text, spans=spans, operation=self.operation)


def edited_body(
    body: bytes, spans: MemberSpans | None, changes: dict[str, Any], removed: frozenset[str] = frozenset()
) -> tuple[bytes, MemberSpans | None]:
    """Return the body with members set and removed, and their positions there; all others keep their bytes."""
    if spans is not None:
        return spans.edited(body, changes, removed)
    left = without_members(body, removed) if removed else body
    return with_members(left, changes), None


def text_bytes(raw: bytes, messages: list[Message]) -> int:
    """Return the bytes of the body that are text for the model: all but images and audio, and at least 1."""
    size = len(raw)
    for message in messages:
        if type(message.content) is list:
            size -= _media_bytes(message.content)
    return size if size > 0 else 1


def _media_bytes(parts: Sequence[object]) -> int:
    """Return the bytes of media in a message, less the bytes that each medium counts for."""
    size = 0
    for part in parts:
        if isinstance(part, ImagePart):
            size += len(part.image_url.url) - _MEDIA_TEXT_BYTES
        elif isinstance(part, AudioPart):
            size += sum(len(value) for value in part.input_audio.values() if isinstance(value, str)) - _MEDIA_TEXT_BYTES
    return size


def _is_top_level(raw: bytes, found: re.Match[bytes]) -> bool:
    """Return whether the only key written `"model"` surely belongs to the top-level object.

    That holds when nothing was opened before it, when nothing else is closed after it, or when no escape can spell it.
    """
    begin, end = found.span()
    if raw.count(b"{", 0, begin) == 1 and raw.count(b"[", 0, begin) == 0:
        return True
    if raw.count(b"}", end) == 1 and raw.count(b"]", end) == 0:
        return True
    return not may_escape_a_name(raw)


class ChatRequestParser:
    """Parser of request bodies; it names the field that is wrong."""

    def __init__(self) -> None:
        self._names = frozenset(field.encode_name for field in msgspec.structs.fields(ChatFields))
        self._guard = JsonGuard(self._names | PRIVILEGED_FIELDS, item_limits(ChatFields))

    def parse(self, body: bytes) -> ChatRequest:
        """Return the request in `body`.

        Raises:
            InvalidRequest: The body is not valid; `param` is the path of the first wrong field.
        """
        if body.startswith(_BYTE_ORDER_MARK):
            raise InvalidRequest(
                "The body begins with a byte-order mark. Send plain UTF-8 without one.", code="invalid_json"
            )
        document, spans = self._guard.read(body)
        if not PRIVILEGED_FIELDS.isdisjoint(document):
            refuse_privileged(document)
        try:
            fields = _checked_fields(document, is_long=spans is not None)
        except InvalidRequest:
            return self._mended(document, body, spans)
        return ChatRequest(body, document, fields, spans=spans)

    def _mended(self, document: dict[str, Any], body: bytes, spans: MemberSpans | None) -> ChatRequest:
        """Return the request without absent members, and with integers in place of floats such as 7.0.

        Members that need no change keep their bytes.
        """
        present = without_absent(document, self._names)
        mended = {**present, **whole_numbers(present, _INTEGER_FIELDS)}
        fields = _checked_fields(mended, is_long=spans is not None)
        changes = {name: value for name, value in mended.items() if not is_same(value, document[name])}
        raw, spans = edited_body(body, spans, changes, frozenset(document.keys() - mended.keys()))
        return ChatRequest(raw, mended, fields, spans=spans)


def is_same(mended: Any, sent: Any) -> bool:
    """Return whether the value is as it was sent; 7 and 7.0 are not."""
    return mended is sent or (type(mended) is type(sent) and bool(mended == sent))


def require_json(content_type: bytes | None, content_encoding: bytes | None) -> None:
    """Check that the body is declared as plain UTF-8 JSON.

    Raises:
        UnsupportedMediaType: It is declared as anything else, or as compressed.
    """
    if content_type != b"application/json" and not _is_json(content_type):
        raise UnsupportedMediaType("The body must be JSON. Send 'Content-Type: application/json'.")
    if content_encoding is not None and not set(listed((content_encoding,))) <= {b"identity"}:
        raise UnsupportedMediaType("Compressed request bodies are not accepted. Send the JSON uncompressed.")


def _is_json(content_type: bytes | None) -> bool:
    if content_type is None:
        return False
    kind, _, rest = content_type.partition(b";")
    if kind.strip().lower() != b"application/json":
        return False
    parameters = [part.strip().lower().replace(b'"', b"") for part in rest.split(b";") if part.strip()]
    return all(part in (b"charset=utf-8", b"charset=utf8") for part in parameters if part.startswith(b"charset"))


def _checked_fields(document: dict[str, Any], *, is_long: bool) -> ChatFields:
    try:
        fields = _converted_in_parts(document) if is_long else msgspec.convert(document, ChatFields)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error)) from None
    _check_relations(fields, document["messages"])
    return fields


def _converted_in_parts(document: dict[str, Any]) -> ChatFields:
    """Convert a long document, its messages one by one: a call holds the interpreter's lock to its end."""
    sent = document.get("messages")
    if not isinstance(sent, list) or not 0 < len(sent) <= MAX_MESSAGES:
        return msgspec.convert(document, ChatFields)
    fields = msgspec.convert({**document, "messages": sent[:1]}, ChatFields)
    messages: list[Message] = []
    for number, message in enumerate(sent):
        try:
            messages.append(msgspec.convert(message, Message))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_in_message(str(error), number)) from None
    return msgspec.structs.replace(fields, messages=messages)


def _in_message(reason: str, number: int) -> str:
    """Return msgspec's reason with the path of a message before the path inside of it."""
    if "`$" not in reason:
        return f"{reason} - at `$.messages[{number}]`"
    return reason.replace("`$", f"`$.messages[{number}]", 1)


def whole_numbers(document: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the integer fields written as whole floats, such as 7.0, as integers; to JSON both are one number."""
    return {name: int(value) for name in names if type(value := document.get(name)) is float and value.is_integer()}


def refuse_privileged(document: dict[str, Any]) -> None:
    """Raise InvalidRequest for a field that only the operator may set."""
    found = PRIVILEGED_FIELDS & document.keys()
    if not document.get("chat_template_kwargs"):
        found -= {"chat_template_kwargs"}  # null or empty, it counts as absent like other fields
    if not found:
        return
    name = min(found)
    raise InvalidRequest(
        f"{name}: this field is set by the operator and cannot be part of a request. Remove it.",
        param=name,
        code="unsupported_parameter",
    )


def invalid_field(text: str) -> InvalidRequest:
    """Translate msgspec's "Expected … - at `$.a[0].b`" into a message and a `param` path."""
    reason, _, where = text.partition(" - at `")
    path = where.removeprefix("key` in `").rstrip("`").lstrip("$.")
    reason = _in_words(reason)
    missing = _MISSING_FIELD.search(reason)
    if missing is not None:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return InvalidRequest(f"{path}: this field is required.", param=path)
    unknown = _UNKNOWN_FIELD.search(reason)
    if unknown is not None and not path:
        path = unknown.group(1)
        return InvalidRequest(f"{path}: there is no such field. Remove it.", param=path)
    return InvalidRequest(f"{path}: {reason[:1].lower()}{reason[1:]}.", param=path or None)


def _in_words(reason: str) -> str:
    """Replace a regular expression in the reason by its description."""
    pattern = reason.partition(" matching regex ")[2]
    return f"Expected {IN_WORDS[pattern]}" if pattern in IN_WORDS else reason


def _check_relations(fields: ChatFields, sent: list[dict[str, Any]]) -> None:
    """Check the rules between fields, which types cannot express.

    Args:
        fields: The typed fields.
        sent: The messages as the client wrote them.

    Raises:
        InvalidRequest: A field is only allowed beside another one.
    """
    for index, message in enumerate(fields.messages):
        if type(message) is AssistantMessage and message.content is None:
            _check_silent_assistant(index, message, sent[index])
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest("stream_options: only allowed together with 'stream': true.", param="stream_options")
    if fields.top_logprobs is not None and not fields.logprobs:
        raise InvalidRequest("top_logprobs: only allowed together with 'logprobs': true.", param="top_logprobs")


def _check_silent_assistant(index: int, message: AssistantMessage, sent: dict[str, Any]) -> None:
    if message.tool_calls or message.function_call is not None or message.refusal is not None:
        return
    if any(value for name, value in sent.items() if name not in ("role", "name", "content")):
        return  # an answer of reasoning, audio or another extension alone
    raise InvalidRequest(
        f"messages[{index}].content: may be null only beside 'tool_calls', 'function_call' or 'refusal'.",
        param=f"messages[{index}].content",
    )
