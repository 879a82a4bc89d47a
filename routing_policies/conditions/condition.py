"""Condition: the compiled `match.when` of a route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from routing_policies.conditions.checker import Checker
from routing_policies.conditions.tokens import ConditionError

MAX_TEXT_CHARS: Final = 2_000
"""Characters of the last message in `request.text`; they bound the cost of a pattern."""


class Facts(Protocol):
    """Facts about a request that a condition can read."""

    def fact(self, name: str) -> str | int | bool:
        """Return the value of `request.NAME`, computed only when a condition reads it."""
        ...


class Condition:
    """Compiled condition; an evaluation computes only the facts that it reads."""

    __slots__ = ("_fields", "_headers", "_needs_tenant", "_run", "source")

    def __init__(self, source: str) -> None:
        """Check and compile the source; raises ConditionError."""
        import cel  # only a policy with conditions pays for its imports: 28 MB

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
        """Headers that the condition reads."""
        return self._headers

    @property
    def needs_headers(self) -> bool:
        """True if the condition reads any header."""
        return bool(self._headers)

    def holds(self, facts: Facts, tenant: str | None, headers: Mapping[str, str]) -> bool:
        """Return whether the condition is true for a request.

        An overflow or a division by zero makes it false. An absent header is empty text.
        """
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
    """Check that the pattern engine accepts a pattern; raises ConditionError."""
    import cel  # as above

    try:
        cel.evaluate(f'"".matches({pattern})', {})
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConditionError(f"{pattern} is no pattern: {str(error).splitlines()[0]}", 1) from error
