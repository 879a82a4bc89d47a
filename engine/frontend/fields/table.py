"""The field table as the engine reads it: `fields.json`, equal to the gateway's, with the engine's narrower limits.

A row stands under the field's path. There `[]` is an item of a list, and `{}` a member under a name of the client's
choice.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

KnownType = Literal["any", "boolean", "integer", "list", "number", "object", "string"]


class KnownField(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    type: KnownType
    gateway: Literal["reads", "checks", "passes", "refuses"]
    """`reads`: the field changes what the gateway does; `checks`: only its type and range; `passes`: not even these."""
    engine: Literal["serves", "ignores", "refuses"]
    """Use by the bundled engine, which refuses a field without which the answer would have another meaning."""
    least: int | None = None
    """Smallest number, or smallest length of a string, list or object."""
    most: int | None = None
    above: int | None = None
    """Number that the value must exceed."""
    values: tuple[str, ...] = ()
    """Strings allowed; empty: any."""
    pattern: str | None = None
    """Regular expression of a string, or of the keys of an object."""
    must: str | None = None
    """The condition in words, where type and bounds do not tell it."""
    only_with: str | None = None
    """Field that must be true beside this one."""
    is_closed: bool = False
    """True if no unknown member may stand in it."""
    because: str | None = None
    """Reason for the refusal."""
    served: tuple[Any, ...] = ()
    """Values that the engine does not refuse, because they change nothing."""
    engine_least: int | None = None
    engine_most: int | None = None
    engine_pattern: str | None = None
    engine_must: str | None = None
    """Limits of the engine where they are narrower."""

    @property
    def condition(self) -> str:
        """Condition in words, to stand behind `must`."""
        return self.must or f"be {self._noun}{self._range}"

    @property
    def range_condition(self) -> str:
        """Condition for a value of the right type, such as `be between 0 and 2`."""
        if self.must is None and self.type in ("integer", "number") and self._range:
            return f"be{self._range}"
        return self.condition

    @property
    def _noun(self) -> str:
        if self.values:
            names = [f'"{value}"' for value in self.values]
            return f"{', '.join(names[:-1])} or {names[-1]}"
        return _NOUNS[self.type]

    @property
    def _range(self) -> str:
        if self.type in ("integer", "number"):
            return _number_range(self)
        unit = _UNITS.get(self.type)
        if unit is None or self.most is None:
            return ""
        return f" of at most {self.most} {unit}" if not self.least else f" of {self.least} to {self.most} {unit}"


_NOUNS: Final[dict[KnownType, str]] = {
    "any": "any value",
    "boolean": "true or false",
    "integer": "an integer",
    "list": "a list",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_UNITS: Final[dict[KnownType, str]] = {"list": "items", "object": "members", "string": "characters"}


def _number_range(rule: KnownField) -> str:
    if rule.above is not None:
        return f" above {rule.above} and at most {rule.most}"
    if rule.least is None or rule.most is None:
        return ""
    return f" between {rule.least} and {rule.most}"


def _narrowed(row: KnownField) -> KnownField:
    """Return the row with the engine's limits in place of the common ones."""
    return msgspec.structs.replace(
        row,
        least=row.least if row.engine_least is None else row.engine_least,
        most=row.most if row.engine_most is None else row.engine_most,
        pattern=row.engine_pattern or row.pattern,
        must=row.engine_must or row.must,
    )


_ROWS: Final = msgspec.json.decode(files(__package__).joinpath("fields.json").read_bytes(), type=dict[str, KnownField])
KNOWN_FIELDS: Final = {path: _narrowed(row) for path, row in _ROWS.items()}
"""The table, by path."""

PRIVILEGED: Final = frozenset(path for path, row in KNOWN_FIELDS.items() if row.gateway == "refuses")
"""Fields that a client may never set."""


def bounds(path: str) -> msgspec.Meta:
    """Return a field's bounds for the annotation of its type."""
    rule = KNOWN_FIELDS[path]
    if rule.type in ("integer", "number"):
        if rule.above is not None:
            return msgspec.Meta(gt=rule.above, le=rule.most)
        return msgspec.Meta(ge=rule.least, le=rule.most)
    return msgspec.Meta(min_length=rule.least, max_length=rule.most, pattern=rule.pattern)


def key_bounds(path: str) -> msgspec.Meta:
    """Return the bounds of the keys of an object whose members have names of the client's choice."""
    return msgspec.Meta(pattern=KNOWN_FIELDS[path + "{}"].pattern)
