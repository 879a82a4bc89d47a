"""ChatRequest: a chat completion request, parsed and checked once."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from gateway.chat.absent import without_absent
from gateway.chat.chunked_json import encoded_in_parts
from gateway.chat.conversion import lenient_fields, typed_fields, typed_messages
from gateway.chat.fields.table import FIELD_RULES, PRIVILEGED_FIELDS
from gateway.chat.item_limits import item_limits
from gateway.chat.json_members import (
    encoded,
    may_escape_a_name,
    members_of,
    mended_json,
    with_members,
    without_members,
)
from gateway.chat.member_spans import MemberSpans
from gateway.chat.operation import CHAT, Operation
from gateway.chat.schema import AudioPart, ChatFields, ChatStreamOptions, ImagePart, Message
from gateway.chat.strict_json import LONG_BYTES, JsonGuard
from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.util.header_values import listed

_MODEL_VALUE: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_INTEGER_FIELDS: Final = tuple(
    path for path, rule in FIELD_RULES.items() if rule.type == "integer" and path in ChatFields.__struct_fields__
)
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Fields that bound the length of an answer; servers reject requests in which they differ."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MEDIA_TEXT_BYTES: Final = 1024
"""Bytes of text that one image or audio part counts for; its encoded size is no measure of its tokens."""


class Projection(Protocol):
    """Way from a chat document with members of another API to one that every server of chat completions takes."""

    dialect: str
    """Name of the dialect whose deployments read those members."""
    own_fields: frozenset[str]
    """Paths of those members, as in the field table."""
    headers: Sequence[tuple[bytes, bytes]]
    """Headers of the request to a server of chat completions, for what the answer needs to become the other API's."""

    def plain(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document without those members; raises InvalidRequest where one of them is needed."""


class ChatRequest:
    """A request as the client sent it: raw bytes, JSON document and typed fields. Never changed in place."""

    __slots__ = (
        *("document", "fields", "max_output_tokens", "messages", "model", "num_choices", "operation", "outline"),
        *("_spans", "projection", "raw", "stream", "text_bytes"),
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
        projection: Projection | None = None,
    ) -> None:
        """Wrap a parsed request.

        Args:
            raw: Body as the client sent it.
            document: Members of the body.
            fields: Typed members.
            num_text_bytes: Value of `text_bytes` where the caller has computed it.
            spans: Positions of the known members of a long body, which is too long to be searched for them.
            operation: What the request wants from a model; `raw` has the form of that endpoint.
            projection: Way to the body for servers of chat completions; None where `raw` is that body.
        """
        self.projection = projection
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
        if self.projection is not None:
            return encoded({**self.projection.plain(self.document), "model": model})
        if model == self.fields.model:
            return self.raw
        raw = self.raw
        if self._spans is not None:
            return self._spans.edited(raw, {"model": model})[0]
        match = _MODEL_VALUE.search(raw) if raw.count(b'"model"') == 1 else None
        if match is not None and _is_top_level(raw, match):
            return b"".join((raw[: match.start(1)], msgspec.json.encode(model), raw[match.end(1) :]))
        return with_members(raw, {"model": model})

    def in_dialect(self, name: str) -> ChatRequest:
        """Return the request without members of other dialects; raises InvalidRequest where one of them is needed."""
        if self.projection is None or self.projection.dialect == name:
            return self
        document = self.projection.plain(self.document)
        size = self.text_bytes
        return ChatRequest(encoded(document), document, self.fields, num_text_bytes=size, operation=self.operation)

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

    def with_seed(self, seed: int) -> ChatRequest:
        """Return the request with a seed of the sampler."""
        return self._changed({"seed": seed}, msgspec.structs.replace(self.fields, seed=seed))

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
        fields = msgspec.structs.replace(self.fields, messages=typed_messages(messages))
        return self._changed({"messages": messages}, fields)

    def _changed(self, changes: dict[str, Any], fields: ChatFields) -> ChatRequest:
        """Return the request with other top-level members; all others keep the client's spelling."""
        raw, spans = _edited(self.raw, self._spans, changes)
        text = None
        if fields.messages is self.messages:
            text = max(1, self.text_bytes + len(raw) - len(self.raw))
        document = {**self.document, **changes}
        return ChatRequest(
            raw,
            document,
            fields,
            num_text_bytes=text,
            spans=spans,
            operation=self.operation,
            projection=self.projection,
        )


def _edited(
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
        self._names = frozenset(ChatFields.__struct_encode_fields__)
        self._guard = JsonGuard(self._names | PRIVILEGED_FIELDS, item_limits(ChatFields))

    def parse(self, body: bytes) -> ChatRequest:
        """Return the request in `body`.

        Raises:
            InvalidRequest: The body is not valid; `param` is the path of the first wrong field.
        """
        document, spans = read_members(self._guard, body)
        try:
            fields = typed_fields(document, is_long=spans is not None)
        except InvalidRequest:
            return self._read_leniently(document, body, spans)
        return ChatRequest(body, document, fields, spans=spans)

    def accept(
        self,
        document: dict[str, Any],
        projection: Projection | None = None,
        media_bytes: int = 0,
        *,
        may_be_long: bool = False,
    ) -> ChatRequest:
        """Return the request of a document that was translated from another API.

        Args:
            document: Members of the request.
            projection: Way to the body for servers of chat completions; None where the document is that.
            media_bytes: Bytes of parts that are no text and that the gateway does not read.
            may_be_long: Whether encoding the document in one call could hold the interpreter's lock for long.

        Raises:
            InvalidRequest: The document is not valid; `param` is the path of the first wrong field in it.
        """
        check_privileged(document)
        encode = encoded_in_parts if may_be_long else encoded
        raw = encode(document)
        is_long = len(raw) > LONG_BYTES
        try:
            fields = typed_fields(document, is_long=is_long)
        except InvalidRequest:
            whole = whole_numbers(document, _INTEGER_FIELDS)
            document = {**document, **whole}
            fields = lenient_fields(document, is_long=is_long)
            if whole:
                raw = encode(document)
        num_text_bytes = max(text_bytes(raw, fields.messages) - media_bytes, 1) if media_bytes else None
        return ChatRequest(raw, document, fields, num_text_bytes=num_text_bytes, projection=projection)

    def _read_leniently(self, document: dict[str, Any], body: bytes, spans: MemberSpans | None) -> ChatRequest:
        """Return a request that has parts of unread kinds, or else members to be mended."""
        with suppress(InvalidRequest):
            return ChatRequest(body, document, lenient_fields(document, is_long=spans is not None), spans=spans)
        return self._mended(document, body, spans)

    def _mended(self, document: dict[str, Any], body: bytes, spans: MemberSpans | None) -> ChatRequest:
        """Return the request without absent members, and with integers in place of floats such as 7.0.

        All else keeps its bytes, at every depth.
        """
        present = without_absent(document, self._names)
        mended = {**present, **whole_numbers(present, _INTEGER_FIELDS)}
        fields = lenient_fields(mended, is_long=spans is not None)
        raw, spans = mended_body(body, spans, document, mended)
        return ChatRequest(raw, mended, fields, spans=spans)


def mended_body(
    body: bytes, spans: MemberSpans | None, document: dict[str, Any], mended: dict[str, Any]
) -> tuple[bytes, MemberSpans | None]:
    """Return the body of a mended document, and its members' positions; what is unchanged keeps its bytes."""
    changed = {name for name, value in mended.items() if value is not document[name]}
    removed = frozenset(document.keys() - mended.keys())
    changes = {
        name: msgspec.Raw(mended_json(value, document[name], mended[name]))
        for name, value in _values_of(body, spans, changed)
    }
    return _edited(body, spans, changes, removed)


def _values_of(body: bytes, spans: MemberSpans | None, names: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the JSON text of members."""
    if spans is not None:
        yield from ((name, spans.value_of(body, name)) for name in names)
    elif names:
        for member in members_of(body):
            if member.name in names:
                yield member.name, body[member.value_start : member.end]


def read_members(guard: JsonGuard, body: bytes) -> tuple[dict[str, Any], MemberSpans | None]:
    """Return the members of a body, and of a long one their positions.

    Raises:
        InvalidRequest: It is no acceptable JSON, or sets a field that only the operator sets.
    """
    if body.startswith(_BYTE_ORDER_MARK):
        raise InvalidRequest(
            "The body begins with a byte-order mark. Send plain UTF-8 without one.", code="invalid_json"
        )
    document, spans = guard.read(body)
    check_privileged(document)
    return document, spans


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


def whole_numbers(document: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return fields with integers in place of whole floats such as 7.0, in lists too; to JSON both are one number."""
    found = {name: _whole(document[name]) for name in names if type(document.get(name)) in (float, list)}
    return {name: value for name, value in found.items() if value is not document[name]}


def _whole(value: Any) -> Any:
    """Return the value itself where nothing in it changes, so that it keeps its bytes."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not list:
        return value
    items = [_whole(item) for item in value]
    return value if all(map(operator.is_, items, value)) else items


def check_privileged(document: dict[str, Any]) -> None:
    """Raise InvalidRequest for a field that only the operator sets."""
    if PRIVILEGED_FIELDS.isdisjoint(document):
        return
    name = min(PRIVILEGED_FIELDS & document.keys())
    raise InvalidRequest(
        f"`{name}` must not be part of a request; {FIELD_RULES[name].because}.",
        param=name,
        code="unsupported_parameter",
    )
