"""OperationParser: request bodies of operations other than chat, whose answers pass unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from gateway.chat.absent import without_absent
from gateway.chat.conversion import refused
from gateway.chat.fields.faults import fault_of
from gateway.chat.fields.table import FIELD_RULES, PRIVILEGED_FIELDS, FieldRule
from gateway.chat.item_limits import item_limits
from gateway.chat.member_spans import MemberSpans
from gateway.chat.request import ChatRequest, mended_body, read_members, whole_numbers
from gateway.chat.schema import UserMessage
from gateway.chat.strict_json import JsonGuard
from gateway.errors import InvalidRequest

F = TypeVar("F", bound=msgspec.Struct)

BYTES_PER_TOKEN: Final = 4
"""Bytes of text that one token id counts as."""
MAX_PROMPT_TOKENS: Final = 200_000
"""Maximum number of token ids of one prompt or input."""


class ParsedBody(NamedTuple, Generic[F]):
    """A body with its typed fields."""

    raw: bytes
    document: dict[str, Any]
    fields: F
    spans: MemberSpans | None


class OperationParser(Generic[F]):
    """Parser of the bodies of one operation; unknown fields pass, as they do for chat completions."""

    def __init__(
        self, kind: type[F], make: Callable[[ParsedBody[F]], ChatRequest], own_rules: Mapping[str, FieldRule]
    ) -> None:
        """Create a parser.

        Args:
            kind: Typed fields of the body.
            make: Makes the request, or raises InvalidRequest for fields that do not go together.
            own_rules: Rules of the fields that chat completions do not have, or have otherwise.
        """
        self._kind = kind
        self._make = make
        self._rules = {**FIELD_RULES, **own_rules}
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        self._integers = [name for name in names if self._rules[name].type == "integer" or f"{name}[][]" in self._rules]
        self._optional = frozenset(
            field.encode_name for field in msgspec.structs.fields(kind) if field.default is not msgspec.NODEFAULT
        )
        self._guard = JsonGuard(PRIVILEGED_FIELDS.union(names), item_limits(kind))

    def parse(self, body: bytes) -> ChatRequest:
        """Return the request in `body`; raises InvalidRequest with the path of the first wrong field."""
        return self._make(self.read(body))

    def read(self, body: bytes) -> ParsedBody[F]:
        """Return the body with its typed fields; raises InvalidRequest with the path of the first wrong one."""
        document, spans = read_members(self._guard, body)
        try:
            return ParsedBody(body, document, self._converted(document), spans)
        except InvalidRequest:
            return self._mended(document, body, spans)

    def _converted(self, document: dict[str, Any]) -> F:
        try:
            return msgspec.convert(document, self._kind)
        except msgspec.ValidationError as error:
            raise refused(fault_of(str(error), document, self._rules)) from None

    def _mended(self, document: dict[str, Any], body: bytes, spans: MemberSpans | None) -> ParsedBody[F]:
        """Return the body without absent members, and with integers in place of floats such as 7.0."""
        present = without_absent(document, self._optional)
        mended = {**present, **whole_numbers(present, self._integers)}
        fields = self._converted(mended)
        raw, spans = mended_body(body, spans, document, mended)
        return ParsedBody(raw, mended, fields, spans)


class PromptList(NamedTuple):
    """The prompts or inputs of a request."""

    texts: list[str]
    """Their texts; empty for one of token ids."""
    num_text_bytes: int | None
    """Bytes that count as text for the model where they are token ids; None: those of the body."""

    @property
    def messages(self) -> list[UserMessage]:
        """Return each as a user's message, which is how the pipeline reads it."""
        return [UserMessage(content=text) for text in self.texts]


def prompts_of(value: str | list[Any], name: str) -> PromptList:
    """Return the prompts of a text, of token ids, or of a list of either.

    Raises:
        InvalidRequest: The list is empty, or mixes kinds.
    """
    if isinstance(value, str):
        return PromptList([value], None)
    if not value:
        raise InvalidRequest(f"`{name}` must have at least one item; got an empty list.", param=name)
    kind = type(value[0])
    strange = next((place for place, item in enumerate(value) if type(item) is not kind), None)
    if strange is not None:
        path = f"{name}[{strange}]"
        raise InvalidRequest(
            f"`{path}` must be of the first item's kind: texts, token ids or lists of token ids.",
            param=path,
        )
    if kind is str:
        return PromptList(value, None)
    if kind is int:
        return PromptList([""], BYTES_PER_TOKEN * len(value))
    empty = next((place for place, item in enumerate(value) if not item), None)
    if empty is not None:
        path = f"{name}[{empty}]"
        raise InvalidRequest(f"`{path}` must have at least one token id; got an empty list.", param=path)
    return PromptList([""] * len(value), BYTES_PER_TOKEN * sum(map(len, value)))
