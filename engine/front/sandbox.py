"""Jinja environment for chat templates: no Python attributes, no mutation, bounded loops, strings and output."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

MAX_OUTPUT_CHARS = 32 * 1024 * 1024
MAX_RANGE_ITEMS = 1_000_000
MAX_REPEATED_CHARS = 1_000_000
MAX_RENDER_S = 5.0
_MAX_INDENT = 16
_MAX_EXPONENT = 64
_UNBOUNDED_STRING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_UNBOUNDED_FILTERS = ("center", "format", "indent", "wordwrap", "pprint", "urlize", "random")


class TemplateError(ValueError):
    """The template is broken, or refused the conversation (`raise_exception`), or exceeded a bound."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's text for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012  (the base class declares it as a plain set)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, without the operations that make much out of little."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"])
        for name in _UNBOUNDED_FILTERS:
            del self.filters[name]
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        for name in ("range", "lipsum"):
            del self.globals[name]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja's rule, and no string method whose result can be as long as a number says."""
        if isinstance(obj, str) and attr in _UNBOUNDED_STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """None, or TemplateError for a string's `format`, whose fields can be as wide as a number says."""
        if super().wrap_str_format(value) is not None:
            raise TemplateError("the template uses format(), which is not served; use ~")
        return None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Repetition, powers and formatting with a bound on the result."""
        if operator == "*" and not _is_small_product(left, right):
            raise TemplateError("the template repeats a value too often")
        if operator == "**" and not (_is_number(left) and _is_number(right) and abs(right) <= _MAX_EXPONENT):
            raise TemplateError("the template raises to a power that is too high")
        if operator == "%" and isinstance(left, str):
            raise TemplateError("the template formats with %, which is not served; use ~")
        return super().call_binop(context, operator, left, right)


def render(template: jinja2.Template, variables: Mapping[str, Any], clock: Callable[[], float]) -> str:
    """The template's output. Raises TemplateError on its own errors and when it exceeds a bound."""
    deadline = clock() + MAX_RENDER_S
    pieces: list[str] = []
    length = 0
    try:
        for piece in template.generate({**variables, "range": _Ranges()}):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_OUTPUT_CHARS:
                raise TemplateError(f"the rendered prompt exceeds {MAX_OUTPUT_CHARS} characters")
            if clock() > deadline:
                raise TemplateError(f"rendering took longer than {MAX_RENDER_S} s")
    except jinja2.TemplateError as error:
        raise TemplateError(str(error)) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(f"{type(error).__name__}: {error}") from error
    return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


class _Ranges:
    """`range` for one rendering: all that its loops may run through together is bounded."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_ITEMS

    def __call__(self, *bounds: int) -> range:
        values = range(*bounds)
        self._left -= len(values) + 1
        if self._left < 0:
            raise TemplateError(f"the template's ranges have more than {MAX_RANGE_ITEMS} items")
        return values


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: not escaped for HTML."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateError(f"the template indents JSON by more than {_MAX_INDENT}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_small_product(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return True
    sized, count = (right, left) if _is_number(left) else (left, right)
    return isinstance(count, int) and len(sized) * count <= MAX_REPEATED_CHARS
