"""Condition: `match.when` of a route, ready to be asked about requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import cel

from routing_policies.conditions.checker import Checker
from routing_policies.conditions.tokens import ConditionError

MAX_TEXT_CHARS: Final = 2_000
"""Of the last message, what `request.text` is: bounds what a pattern can cost."""


class Facts(Protocol):
    """What a condition may ask of a request."""

    def fact(self, name: str) -> str | int | bool:
        """The value of `request.NAME`; worked out only when a condition asks."""
        ...


class Condition:
    """Compiled once. Pays only for what it looks at."""

    __slots__ = ("_fields", "_headers", "_needs_tenant", "_run", "source")

    def __init__(self, source: str) -> None:
        """Raises ConditionError."""
        checker = Checker(source)
        checker.check()
        try:
            self._run = cel.compile(source).execute
        except ValueError as error:
            raise ConditionError(f"not a CEL expression: {error}".splitlines()[0], 1) from error
        self.source = source
        self._fields = tuple(sorted(checker.fields))
        self._headers = tuple(sorted(checker.headers))
        self._needs_tenant = checker.needs_tenant
        for pattern in checker.patterns:
            _check_pattern(pattern)

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers it looks at."""
        return self._headers

    @property
    def needs_headers(self) -> bool:
        """Whether it looks at headers at all."""
        return bool(self._headers)

    @property
    def needs_text(self) -> bool:
        """Whether it looks at what was said."""
        return "text" in self._fields

    def holds(self, facts: Facts, tenant: str | None, headers: Mapping[str, str]) -> bool:
        """Whether it is true; an overflow or a division by zero makes it false. An absent header is empty text."""
        context: dict[str, Any] = {}
        if self._fields:
            context["request"] = {name: facts.fact(name) for name in self._fields}
        if self._headers:
            context["headers"] = {name: headers.get(name, "") for name in self._headers}
        if self._needs_tenant:
            context["tenant"] = tenant or ""
        try:
            return self._run(context) is True
        except (ValueError, TypeError, RuntimeError, ArithmeticError):
            return False


def _check_pattern(pattern: str) -> None:
    """Raises ConditionError for one that the engine does not take."""
    try:
        cel.evaluate(f'"".matches({pattern})', {})
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConditionError(f"{pattern} is no pattern: {str(error).splitlines()[0]}", 1) from error
