"""Merging: JSON objects that come in pieces become one, by rules of form and in time linear in what comes."""

from __future__ import annotations

from typing import Any, Final

MAX_INDEX: Final = 1024
"""Largest index of a choice or tool call; no request may have more, so larger ones mean a broken server."""
_MAX_DEPTH: Final = 32
_IDENTIFIERS: Final = frozenset(
    {"id", "type", "role", "name", "object", "format", "signature", "url", "mime_type", "model", "status", "title"}
)
"""Keys of strings that name something and come whole. All others in a delta are text in pieces."""
_CHANGING: Final = frozenset({"role", "object", "status", "title"})
"""Keys whose last value counts; any other name has one value."""
_TEXTS: Final = frozenset(
    {"content", "reasoning_content", "reasoning", "refusal", "arguments", "text", "thinking", "transcript", "summary"}
)
"""Keys of known text: the same piece may come twice."""
_ENCODED: Final = "data"
_PADDING: Final = "="
"""End of base64 data: pieces that were encoded one by one cannot be joined."""
_UNNUMBERED: Final = frozenset({"annotations", "citations"})
"""Keys of lists whose items' `index` is a place in the text."""


class CannotMerge(Exception):
    """The pieces do not fit together; their intended whole is unknown."""


class _Text:
    """A string that comes in pieces: joined once, for joining each time takes quadratic time."""

    __slots__ = ("parts",)

    def __init__(self, part: str) -> None:
        self.parts = [part]

    def add(self, name: str, part: str) -> None:
        """Add a piece.

        Raises:
            CannotMerge: The value is a word that comes whole each time rather than text in pieces.
        """
        if not part:
            return
        last = self.parts[-1]
        if (part == last and name not in _TEXTS) or (name == _ENCODED and last.endswith(_PADDING)):
            raise CannotMerge(f"pieces of {name}")
        self.parts.append(part)


class _Items:
    """A list that comes in pieces: items with an index are merged with those of the same, others are appended."""

    __slots__ = ("appended", "numbered")

    def __init__(self) -> None:
        self.appended: list[Any] = []
        self.numbered: dict[int, Merged] = {}

    def add(self, name: str, items: list[Any], depth: int) -> None:
        for item in items:
            index = item.get("index") if isinstance(item, dict) and name not in _UNNUMBERED else None
            if index is None:
                self.appended.append(item)
            else:
                number = index_of(item)
                merged = self.numbered.get(number) or self.numbered.setdefault(number, Merged(is_text=True))
                merged.add_item(item, depth)
        if self.appended and self.numbered:
            raise CannotMerge(f"{name}: items with and without an index")


class Merged:
    """One merged object: `add` its pieces in order, then read `finished`."""

    __slots__ = ("_fields", "_is_text")

    def __init__(self, *, is_text: bool) -> None:
        """Create an object; `is_text` marks part of a delta, whose strings are text unless they name something."""
        self._fields: dict[str, Any] = {}
        self._is_text = is_text

    def add(self, piece: dict[str, Any], depth: int = 0) -> None:
        """Add a piece of the object.

        Raises:
            CannotMerge: The piece does not fit.
        """
        if depth > _MAX_DEPTH:
            raise CannotMerge("too deep")
        fields = self._fields
        for name, value in piece.items():
            known = fields.get(name)
            if value is None:
                fields.setdefault(name, None)
            elif isinstance(value, dict):
                if known is None:
                    known = fields[name] = Merged(is_text=self._is_text)
                if not isinstance(known, Merged):
                    raise CannotMerge(name)
                known.add(value, depth + 1)
            elif isinstance(value, list):
                self._add_list(name, known, value, depth)
            elif isinstance(value, str) and self._is_text and not _is_identifier(name):
                if known is None:
                    fields[name] = _Text(value)
                elif isinstance(known, _Text):
                    known.add(name, value)
                else:
                    raise CannotMerge(name)
            elif isinstance(known, Merged | _Items | _Text):
                raise CannotMerge(name)
            elif value != "" or known is None:
                if self._is_text and known and known != value and isinstance(value, str) and name not in _CHANGING:
                    raise CannotMerge(f"two values of {name}")
                fields[name] = value

    def add_item(self, piece: dict[str, Any], depth: int) -> None:
        """Add a piece of a list item.

        Raises:
            CannotMerge: The piece does not fit, or two items share an index.
        """
        for name in ("id", "type"):
            known, stated = self._fields.get(name), piece.get(name)
            if known and stated and known != stated:
                raise CannotMerge(f"two items with one index and another {name}")
        self.add(piece, depth + 1)

    def add_latest(self, name: str, value: list[Any]) -> None:
        """Add a list that some servers send whole each time, in its latest state, and others in pieces."""
        known = self._fields.get(name)
        if known is None:
            known = self._fields[name] = _Items()
        if not isinstance(known, _Items):
            raise CannotMerge(name)
        if value[: len(known.appended)] == known.appended:
            known.appended = value
        else:
            known.appended += value

    def finished(self) -> dict[str, Any]:
        """Return the object as plain values."""
        return {name: _finished(value) for name, value in self._fields.items()}

    def _add_list(self, name: str, known: Any, value: list[Any], depth: int) -> None:
        if known is None:
            known = self._fields[name] = _Items()
        if not isinstance(known, _Items):
            raise CannotMerge(name)
        if self._is_text:
            known.add(name, value, depth)
        else:
            known.appended += value


def index_of(piece: dict[str, Any]) -> int:
    """Return the item's index; 0 for one without.

    Raises:
        CannotMerge: The index is invalid.
    """
    index = piece.get("index")
    if index is None:
        return 0
    if type(index) is not int or not 0 <= index < MAX_INDEX:
        raise CannotMerge(f"index {index!r:.20}")
    return index


def _is_identifier(name: str) -> bool:
    return name in _IDENTIFIERS or name.endswith("_id")


def _finished(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value.parts)
    if isinstance(value, Merged):
        return value.finished()
    if isinstance(value, _Items):
        return value.appended or [value.numbered[number].finished() for number in sorted(value.numbered)]
    return value
