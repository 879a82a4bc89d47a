"""Jinja environment for chat templates: no Python attributes, no mutation, bounded loops, strings and output.

A template comes with a downloaded model, and rendering stands between every request and its answer. So no loop and no
macro goes on past a deadline, whether it writes something or not, and nothing grows much beyond what goes into it.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.filters
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils
import jinja2.visitor

MAX_OUTPUT_CHARS = 32 * 1024 * 1024
MAX_RANGE_ITEMS = 1_000_000
MAX_REPEATED_CHARS = 1_000_000
MAX_RENDER_S = 5.0
_MAX_INDENT = 16
_MAX_EXPONENT = 64
_MAX_INTEGER_BITS = 4096
_UNBOUNDED_METHODS = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "translate", "maketrans", "to_bytes", "from_bytes", "encode"}
)
_UNBOUNDED_FILTERS = ("batch", "center", "format", "indent", "pprint", "random", "slice", "urlize", "wordwrap")
_FRAME_VARIABLES = frozenset({"_loop_vars", "_block_vars"})
"""Arguments that Jinja adds to every call inside a loop or a block; they are no arguments of what is called."""
_CONTAINERS: tuple[type, ...] = (
    *(list, tuple, set, frozenset, dict, type({}.keys()), type({}.values()), type({}.items())),
    jinja2.utils.Namespace,
)
"""What a template can nest in itself and write."""
_BUDGET = "budget of this rendering"
"""Under which a rendering's variables have it: no name that a template could write."""


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

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        extensions = [_GenerationTag, "jinja2.ext.loopcontrols"]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_shown)
        for name in _UNBOUNDED_FILTERS:
            del self.filters[name]
        self.filters |= {
            "tojson": _to_json,
            "replace": _replaced,
            "join": _joined_filter,
            "round": _rounded,
            "string": _text,
        }
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        for name in ("range", "lipsum"):
            del self.globals[name]

    def bounded_template(self, source: str) -> jinja2.Template:
        """The template, with a look at the clock in every round of a loop. Raises jinja2.TemplateError."""
        return self.from_string(_Bounding().visit(self.parse(source)))

    @jinja2.pass_context
    def check_time(self, context: jinja2.runtime.Context) -> bool:
        """True, or TemplateError when rendering has taken too long."""
        context.parent[_BUDGET].check_time()
        return True

    def concatenate(self, *values: Any) -> str:
        """What `~` makes. Raises TemplateError."""
        return _joined(values)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja's rule, and no method whose result can be as long as a number or a table says."""
        return attr not in _UNBOUNDED_METHODS and super().is_safe_attribute(obj, attr, value)

    def call(self, context: jinja2.runtime.Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Jinja's rule; the methods of strings that can make much out of little as their filters do it."""
        text = getattr(obj, "__self__", None)
        if isinstance(text, str) and obj.__name__ in ("replace", "join"):
            given = {name: value for name, value in kwargs.items() if name not in _FRAME_VARIABLES}
            return _replaced(text, *args, **given) if obj.__name__ == "replace" else _joined_by(text, *args, **given)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """None, or TemplateError for a string's `format`, whose fields can be as wide as a number says."""
        if super().wrap_str_format(value) is not None:
            raise TemplateError("the template uses format(), which is not served; use ~")
        return None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Sums, repetition, powers and formatting with a bound on the result."""
        if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            _check_length(len(left) + len(right))
        if operator == "*" and not _is_small_product(left, right):
            raise TemplateError("the template repeats a value too often")
        if operator == "**" and not _is_small_power(left, right):
            raise TemplateError("the template raises to a power that is too high")
        if operator == "%" and isinstance(left, str):
            raise TemplateError("the template formats with %, which is not served; use ~")
        return super().call_binop(context, operator, left, right)


def render(template: jinja2.Template, variables: Mapping[str, Any], clock: Callable[[], float]) -> str:
    """The template's output. Raises TemplateError on its own errors and when it exceeds a bound."""
    budget = _Budget(clock)
    pieces: list[str] = []
    length = 0
    try:
        for piece in template.generate({**variables, "range": budget.range, _BUDGET: budget}):
            pieces.append(piece)
            length += len(piece)
            _check_length(length)
            budget.check_time()
    except jinja2.TemplateError as error:
        raise TemplateError(str(error)) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(f"{type(error).__name__}: {error}") from error
    return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


class _Budget:
    """What one rendering may take: a time, and so many items of ranges, whatever its loops are."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deadline = clock() + MAX_RENDER_S
        self._left = MAX_RANGE_ITEMS

    def check_time(self) -> None:
        """Raise TemplateError past the deadline."""
        if self._clock() > self._deadline:
            raise TemplateError(f"rendering took longer than {MAX_RENDER_S} s")

    def range(self, *bounds: int) -> range:
        """`range` as templates know it. Raises TemplateError."""
        values = range(*bounds)
        self._left -= len(values) + 1
        if self._left < 0:
            raise TemplateError(f"the template's ranges have more than {MAX_RANGE_ITEMS} items")
        return values


class _Bounding(jinja2.visitor.NodeTransformer):
    """Puts a look at the clock into loops and macros, and a bounded function in the place of `~`."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        """Also before the condition of a loop that has one: it may pass over everything."""
        self.generic_visit(node)
        node.body.insert(0, _look(node))
        if node.test is not None:
            node.test = jinja2.nodes.And(_called("check_time", [], node), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: jinja2.nodes.Macro) -> jinja2.nodes.Node:
        """Macros can call each other more often than any loop runs."""
        self.generic_visit(node)
        node.body.insert(0, _look(node))
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        """The same, bounded."""
        self.generic_visit(node)
        return _called("concatenate", node.nodes, node)


def _look(place: jinja2.nodes.Node) -> jinja2.nodes.Node:
    return jinja2.nodes.ExprStmt(_called("check_time", [], place), lineno=place.lineno)


def _called(name: str, arguments: list[jinja2.nodes.Expr], place: jinja2.nodes.Node) -> jinja2.nodes.Expr:
    """A call of the environment's method."""
    method = jinja2.nodes.EnvironmentAttribute(name, lineno=place.lineno)
    return jinja2.nodes.Call(method, arguments, [], None, None, lineno=place.lineno)


def _check_length(length: int) -> None:
    if length > MAX_OUTPUT_CHARS:
        raise TemplateError(f"the rendered prompt exceeds {MAX_OUTPUT_CHARS} characters")


def _text(value: Any) -> str:
    """The value as text. Raises TemplateError before there is too much of it."""
    return str(_shown(value))


def _shown(value: Any) -> Any:
    """The value itself, which will be written. Raises TemplateError for containers whose text would be too long.

    A list may hold another one twice, that one a third twice, and so on; so items are counted as often as they show.
    """
    if not isinstance(value, _CONTAINERS):
        return value
    num_items = length = 0
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        num_items += 1
        if isinstance(item, str):
            length += len(item)
        elif isinstance(item, jinja2.utils.Namespace):
            raise TemplateError("the template writes a namespace, not what is in it")
        elif isinstance(item, dict):
            pending.extend(item.items())
        elif isinstance(item, Iterable) and isinstance(item, _CONTAINERS):
            pending.extend(item)
        if num_items > MAX_RANGE_ITEMS:
            raise TemplateError(f"the template writes a value of more than {MAX_RANGE_ITEMS} items")
        _check_length(length)
    return value


def _replaced(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, before, after = str(value), str(old), str(new)
    _check_length(len(text) + text.count(before) * len(after))
    return text.replace(before, after, -1 if count is None else count)


@jinja2.pass_environment
def _joined_filter(
    environment: jinja2.Environment, value: Iterable[Any], d: Any = "", attribute: str | int | None = None
) -> str:
    """`join`: the items, or an attribute of each."""
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    return _joined(value, d)


def _joined(values: Iterable[Any], between: Any = "") -> str:
    separator = str(between)
    pieces: list[str] = []
    length = 0
    for value in values:
        pieces.append(_text(value))
        length += len(pieces[-1]) + len(separator)
        _check_length(length)
    return separator.join(pieces)


def _joined_by(separator: str, values: Iterable[Any]) -> str:
    """Return the text that the method `join` of a string makes."""
    return _joined(values, separator)


def _rounded(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MAX_EXPONENT:
        raise TemplateError("the template rounds to too many places")
    return jinja2.filters.do_round(value, precision, method)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: not escaped for HTML."""
    if indent is not None and not 0 <= (len(indent) if isinstance(indent, str) else indent) <= _MAX_INDENT:
        raise TemplateError(f"the template indents JSON by more than {_MAX_INDENT}")
    text = json.dumps(
        _shown(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    _check_length(len(text))
    return text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_small_product(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return _num_bits(left) + _num_bits(right) <= _MAX_INTEGER_BITS
    sized, count = (right, left) if _is_number(left) else (left, right)
    return isinstance(count, int) and len(sized) * count <= MAX_REPEATED_CHARS


def _is_small_power(left: Any, right: Any) -> bool:
    if not (_is_number(left) and _is_number(right) and abs(right) <= _MAX_EXPONENT):
        return False
    return bool(_num_bits(left) * abs(right) <= _MAX_INTEGER_BITS)


def _num_bits(value: float) -> int:
    """Of an integer; other numbers do not grow."""
    return value.bit_length() if isinstance(value, int) else 0
