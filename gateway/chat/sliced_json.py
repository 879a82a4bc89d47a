"""Decoding of a long JSON object in slices, none of which holds the interpreter's lock for more than milliseconds.

A decoder in C holds the lock from its first byte to its last, so a thread with megabytes of JSON stops the event loop.
Here a regular expression finds a run of whole items of one object or list, of at most `SLICE_BYTES`. The decoder takes
the run between brackets of its own. Items that are longer, or nested deeper than the expression sees, are entered.

    {"model":"a","seed":1,"messages":[{"role":"user","content":"…"}, … ],"stop":["b"]}
     └────── slice ──────┘            └──── slices of this list ───────┘ └─ slice ──┘

The expression need not tell good JSON from bad. Where every slice is a series of items, and single commas separate the
slices, the whole is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from gateway.chat.fields.faults import too_many
from gateway.chat.json_faults import (
    MAX_DEPTH,
    MAX_VALUES,
    decoded,
    finite,
    invalid,
    refuse_repeated_keys,
    repeated,
    too_deep,
)
from gateway.chat.json_members import members_of
from gateway.chat.member_spans import MemberSpan, MemberSpans
from gateway.errors import InvalidRequest

MAX_ITEMS: Final = 4096
"""Items beyond which a long list or object that the gateway does not read stays as it was written."""
SLICE_BYTES: Final = 64 * 1024
_NESTED: Final = 4
"""Levels below an item that the expression sees."""

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_SCALAR: Final = re.compile(rb"[^,\]} \t\n\r]*+")
_TEXT_PART: Final = re.compile(rb'(?:[^"\\]++|\\.){1,8192}+', re.DOTALL)
_SPACED_COLON: Final = re.compile(rb'"[ \t\n\r]+:')
_COMMA, _COLON, _QUOTE, _BACKSLASH = b',:"\\'
_OBJECT, _LIST = b"{["
_CLOSING: Final = {_OBJECT: ord("}"), _LIST: ord("]")}
_MAX_RANGE_DIGITS: Final = 300


def _run_of_items() -> Callable[[bytes, int, int], re.Match[bytes] | None]:
    nested = rb'[\[{](?:[^"{}\[\]]++|%b)*+[\]}]' % _TEXT
    for _ in range(_NESTED - 1):
        nested = rb'[\[{](?:[^"{}\[\]]++|%b|%b)*+[\]}]' % (_TEXT, nested)
    item = rb'(?:[^"{}\[\],]++|%b|%b)*+' % (_TEXT, nested)
    return re.compile(rb"(?:%b,)*+(?:%b(?=[\]}]))?+" % (item, item), re.DOTALL).match


_match_run: Final = _run_of_items()


def _in_range(text: str) -> float:
    """Check a number that nobody reads; only a positive exponent or hundreds of digits can exceed the range."""
    if len(text) > _MAX_RANGE_DIGITS or (("e" in text or "E" in text) and "-" not in text[1:]):
        finite(text)
    return 0.0


_decode: Final = msgspec.json.Decoder(float_hook=finite).decode
_decode_unread: Final = msgspec.json.Decoder(float_hook=_in_range).decode


class _Place(NamedTuple):
    """Place of a list or object in the body."""

    path: str
    """Path for people, such as `messages[3].content`; empty for the whole."""
    pattern: str
    """Path for limits, such as `messages[].content`."""
    depth: int

    def below(self, name: str, number: int, *, is_object: bool) -> _Place:
        """Return the place of an item."""
        if not is_object:
            return _Place(f"{self.path}[{number}]", self.pattern + "[]", self.depth + 1)
        dot = "." if self.path else ""
        return _Place(self.path + dot + name[:64], self.pattern + dot + name, self.depth + 1)


class _Items:
    """The items of one long list or object, as they come."""

    __slots__ = ("found", "is_object", "is_stored", "limit", "num", "place")

    def __init__(self, place: _Place, *, is_object: bool, limit: int | None) -> None:
        self.place = place
        self.is_object = is_object
        self.limit = limit
        """Maximum number of items; None where nobody reads them."""
        self.is_stored = True
        self.num = 0
        self.found: Any = {} if is_object else []

    def merge(self, value: Any) -> None:
        """Add the items of a slice; of those that are not stored, the keys remain for comparison."""
        self.num += len(value)
        if self.is_object:
            if not self.found.keys().isdisjoint(value):
                raise repeated(next(key for key in value if key in self.found))
            self.found.update(value if self.is_stored else dict.fromkeys(value))
        elif self.is_stored:
            self.found += value

    def hold_limit(self, num_values: int) -> None:
        """Raise InvalidRequest above the limit; without one, store no more than a bounded number of items."""
        if self.limit is not None:
            if self.num > self.limit:
                fault = too_many(self.place.path)
                raise InvalidRequest(fault.message, param=fault.param)
        elif self.is_stored and (self.num > MAX_ITEMS or num_values > MAX_VALUES):
            self.is_stored = False
            self.found = dict.fromkeys(self.found) if self.is_object else []


class LongObject:
    """One long JSON object, decoded in slices; `document` and `spans` are the result.

    Lists and objects that nobody reads stay as they were written, as `msgspec.Raw`, where they have very many items.
    """

    def __init__(self, body: bytes, *, names: frozenset[str], limits: Mapping[str, int]) -> None:
        """Decode the object.

        Args:
            body: JSON text.
            names: Top-level members whose positions are wanted.
            limits: Maximum number of items of lists and objects that are read, by path: `messages[].content`.

        Raises:
            InvalidRequest: The body is no acceptable JSON, or exceeds a limit.
        """
        self._body = body
        self._names = names
        self._limits = limits
        self._num_keys = 0
        self._num_values = 0
        self._num_containers = 0
        self._found: dict[str, MemberSpan] = {}
        begin = self._past_space(0)
        if body[begin] != _OBJECT:
            decoded(body, msgspec.json.Decoder(msgspec.Raw).decode)
            raise invalid("The body must be a JSON object.")
        self.document, end = self._container(begin, _Place("", "", 1))
        self.spans = MemberSpans(self._found, end - 1)
        rest = _SPACE.match(body, end)
        if rest is not None and rest.end() < len(body):
            _refuse("trailing characters", rest.end())

    def _container(self, begin: int, place: _Place) -> tuple[Any, int]:
        """Return the list or object that begins here, and the offset behind it."""
        if place.depth > MAX_DEPTH:
            raise too_deep()
        self._num_containers += 1
        body, closing = self._body, _CLOSING[self._body[begin]]
        limit = MAX_VALUES if place.depth == 1 else self._limits.get(place.pattern)
        items = _Items(place, is_object=closing == _CLOSING[_OBJECT], limit=limit)
        at, must_follow = begin + 1, False
        while True:
            end = self._end_of_run(at)
            if has_run := end > at:
                has_comma = body[end - 1] == _COMMA
                self._take_slice(items, at, end - has_comma, is_surely_item=has_comma or must_follow)
                at, must_follow = end, has_comma
            at = self._past_space(at)
            if body[at] == closing:
                break
            if has_run and must_follow:
                continue
            at = self._past_space(self._take_item(items, at))
            must_follow = body[at] == _COMMA
            at += must_follow
            if not must_follow and body[at] != closing:
                _refuse("expected ',' or the end of the list or object", at)
        if must_follow:
            _refuse("trailing comma", at)
        return (items.found if items.is_stored else msgspec.Raw(memoryview(body)[begin : at + 1])), at + 1

    def _take_slice(self, items: _Items, begin: int, end: int, *, is_surely_item: bool) -> None:
        piece = self._body[begin:end]
        text = b"{%b}" % piece if items.is_object else b"[%b]" % piece
        value = decoded(text, _decode if items.is_stored else _decode_unread, begin - 1)
        if not value and is_surely_item:
            _refuse("expected a value", end)
        num_keys = len(value) if items.is_object else 0
        self._num_values += len(value)
        if text.count(b"{") + text.count(b"[") > 1:
            num_keys += self._count(value, items.place.depth)
        if text.count(b'":') != num_keys or _has_spaced_colon(text):  # text like a key, or a key that is repeated
            refuse_repeated_keys(text)
        if items.place.depth == 1 and not self._names.isdisjoint(value):
            for member in members_of(text):
                if member.name in self._names:
                    span = (member.start, member.value_start, member.end)
                    self._found[member.name] = MemberSpan(*(offset + begin - 1 for offset in span))
        items.merge(value)
        self._hold_limits(items, num_keys)

    def _take_item(self, items: _Items, at: int) -> int:
        """Take one item that is long, deep or malformed; return the offset behind it."""
        body, start, name = self._body, at, ""
        if items.is_object:
            if body[at] != _QUOTE:
                _refuse("object keys must be strings", at)
            end = self._past_text(at + 1)
            name = decoded(body[at:end], _decode, at)
            at = self._past_space(end)
            if body[at] != _COLON:
                _refuse("expected ':'", at)
            at = self._past_space(at + 1)
        value_start = at
        if body[at] in _CLOSING:
            value, end = self._container(at, items.place.below(name, items.num, is_object=items.is_object))
        else:
            end = self._past_text(at + 1) if body[at] == _QUOTE else self._past_scalar(at)
            value = decoded(body[at:end], _decode, at)
        if items.place.depth == 1 and name in self._names:
            self._found[name] = MemberSpan(start, value_start, end)
        items.merge({name: value} if items.is_object else [value])
        self._num_values += 1
        self._hold_limits(items, int(items.is_object))
        return end

    def _count(self, value: Any, depth: int) -> int:
        """Count what is inside a slice, level by level over containers only; return the number of keys."""
        level, num_keys = [value], 0
        while True:
            level = [
                child
                for container in level
                for child in (container.values() if isinstance(container, dict) else container)
                if isinstance(child, dict | list)
            ]
            if not level:
                return num_keys
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep()
            self._num_containers += len(level)
            self._num_values += sum(map(len, level))
            num_keys += sum([len(child) for child in level if isinstance(child, dict)])

    def _hold_limits(self, items: _Items, num_keys: int) -> None:
        self._num_keys += num_keys
        if self._num_keys > MAX_VALUES:
            raise invalid(f"The body has more than {MAX_VALUES} keys.")
        if self._num_containers > MAX_DEPTH and self._num_values > MAX_VALUES:
            raise invalid(f"The body has more than {MAX_VALUES} values.")
        items.hold_limit(self._num_values)

    def _end_of_run(self, at: int) -> int:
        run = _match_run(self._body, at, at + SLICE_BYTES)
        assert run is not None, "the expression matches nothing, too"
        return run.end()

    def _past_space(self, at: int) -> int:
        space = _SPACE.match(self._body, at)
        if space is None or space.end() >= len(self._body):
            raise invalid("The body is not valid JSON: Input data was truncated.")
        return space.end()

    def _past_text(self, at: int) -> int:
        """Return the offset behind the text whose first character stands at `at`."""
        body, end = self._body, self._body.find(b'"', at)
        if end > 0 and body[end - 1] != _BACKSLASH:
            return end + 1
        while (part := _TEXT_PART.match(body, at)) is not None:
            at = part.end()
        if at >= len(body) or body[at] != _QUOTE:
            raise invalid("The body is not valid JSON: Input data was truncated.")
        return at + 1

    def _past_scalar(self, at: int) -> int:
        scalar = _SCALAR.match(self._body, at)
        if scalar is None or scalar.end() == at:
            _refuse("expected a value", at)
        return scalar.end()


def _has_spaced_colon(text: bytes) -> bool:
    return (b" :" in text or b"\t:" in text or b"\n:" in text or b"\r:" in text) and (
        _SPACED_COLON.search(text) is not None
    )


def _refuse(reason: str, at: int) -> NoReturn:
    raise invalid(f"The body is not valid JSON: JSON is malformed: {reason} (byte {at}).")
