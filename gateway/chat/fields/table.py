"""The field table as values: `fields.json`, of which the engine's package holds an equal copy.

The table is the one source of what the gateway and the engine check, of the OpenAPI document and of the reference page.
A row stands under the field's path. There `[]` is an item of a list, and `{}` a member under a name of the client's
choice.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

FieldType = Literal["any", "boolean", "integer", "list", "number", "object", "string"]


class FieldRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    type: FieldType
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
    def meaning(self) -> str:
        """Who acts on the field, in a sentence or two."""
        reason = f": {self.because}" if self.engine == "refuses" and self.because else ""
        but = f", except {' and '.join(map(_json, self.served))}" if self.served else ""
        return f"{_GATEWAY[self.gateway]} {_ENGINE[self.engine]}{but}{reason}."

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


_GATEWAY: Final = {
    "reads": "The gateway reads it.",
    "checks": "The gateway checks it.",
    "passes": "The gateway passes it on.",
    "refuses": "The gateway refuses it.",
}
_ENGINE: Final = {
    "serves": "The engine serves it",
    "ignores": "The engine ignores it",
    "refuses": "The engine refuses it",
}
_NOUNS: Final[dict[FieldType, str]] = {
    "any": "any value",
    "boolean": "true or false",
    "integer": "an integer",
    "list": "a list",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_UNITS: Final[dict[FieldType, str]] = {"list": "items", "object": "members", "string": "characters"}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _number_range(rule: FieldRule) -> str:
    if rule.above is not None:
        return f" above {rule.above} and at most {rule.most}"
    if rule.least is None or rule.most is None:
        return ""
    return f" between {rule.least} and {rule.most}"


FIELD_RULES: Final[dict[str, FieldRule]] = msgspec.json.decode(
    files(__package__).joinpath("fields.json").read_bytes(), type=dict[str, FieldRule]
)
"""The table, by path."""

PRIVILEGED_FIELDS: Final = frozenset(path for path, rule in FIELD_RULES.items() if rule.gateway == "refuses")
"""Fields by which a client could choose the upstream or the prompt template; always refused."""


def limits(path: str) -> msgspec.Meta:
    """Return a field's bounds for the annotation of its type."""
    rule = FIELD_RULES[path]
    if rule.type in ("integer", "number"):
        if rule.above is not None:
            return msgspec.Meta(gt=rule.above, le=rule.most)
        return msgspec.Meta(ge=rule.least, le=rule.most)
    return msgspec.Meta(min_length=rule.least, max_length=rule.most, pattern=rule.pattern)


def key_limits(path: str) -> msgspec.Meta:
    """Return the bounds of the keys of an object whose members have names of the client's choice."""
    return msgspec.Meta(pattern=FIELD_RULES[path + "{}"].pattern)
