"""Jinja environment for chat templates: no Python attributes, no mutation, bounded loops, strings and output.

A template comes with a downloaded model and runs for every request. So a deadline ends every loop and macro, even one
that writes nothing, and no operation grows its input much.
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
"""Arguments that Jinja adds to every call inside a loop or a block; the called function does not take them."""
_CONTAINERS: tuple[type, ...] = (
    *(list, tuple, set, frozenset, dict, type({}.keys()), type({}.values()), type({}.items())),
    jinja2.utils.Namespace,
)
"""Types that a template can nest in themselves and write."""
_BUDGET = "budget of this rendering"
"""Key of a rendering's budget among its variables; a template cannot write such a name."""


class TemplateError(ValueError):
    """The template is broken, refuses the conversation (`raise_exception`) or exceeds a bound."""


class _GenerationTag(jinja2.ext.Extension):
    """Tag `{% generation %}…{% endgeneration %}`, which marks an assistant's text for training; it renders its body."""

    tags = {"generation"}  # noqa: RUF012  (the base class declares it as a plain set)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Sandbox without operations whose result can be much larger than their input."""

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
        """Compile a template that checks the clock in every iteration of a loop.

        Raises:
            jinja2.TemplateError: The source has a syntax error.
        """
        return self.from_string(_Bounding().visit(self.parse(source)))

    @jinja2.pass_context
    def check_time(self, context: jinja2.runtime.Context) -> bool:
        """Return True, or raise TemplateError once rendering has taken too long."""
        context.parent[_BUDGET].check_time()
        return True

    def concatenate(self, *values: Any) -> str:
        """Return the result of the operator `~`.

        Raises:
            TemplateError: The result is too long.
        """
        return _joined(values)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether Jinja allows the attribute and it is no method with a result of arbitrary length."""
        return attr not in _UNBOUNDED_METHODS and super().is_safe_attribute(obj, attr, value)

    def call(self, context: jinja2.runtime.Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `obj`; the string methods `replace` and `join` run with the bounds of their filters."""
        text = getattr(obj, "__self__", None)
        if isinstance(text, str) and obj.__name__ in ("replace", "join"):
            given = {name: value for name, value in kwargs.items() if name not in _FRAME_VARIABLES}
            return _replaced(text, *args, **given) if obj.__name__ == "replace" else _joined_by(text, *args, **given)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return None, or raise TemplateError for a string's `format`, whose fields can have any width."""
        if super().wrap_str_format(value) is not None:
            raise TemplateError("the template uses format(), which is not served; use ~")
        return None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Evaluate sums, repetition and powers with a bound on the result; refuse formatting with `%`."""
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
    """Render the template.

    Raises:
        TemplateError: The template fails or exceeds a bound.
    """
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
    """Limits of one rendering: a deadline, and a total number of range items over all loops."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deadline = clock() + MAX_RENDER_S
        self._left = MAX_RANGE_ITEMS

    def check_time(self) -> None:
        """Raise TemplateError past the deadline."""
        if self._clock() > self._deadline:
            raise TemplateError(f"rendering took longer than {MAX_RENDER_S} s")

    def range(self, *bounds: int) -> range:
        """Return the built-in `range`, or raise TemplateError once the total number of items is exceeded."""
        values = range(*bounds)
        self._left -= len(values) + 1
        if self._left < 0:
            raise TemplateError(f"the template's ranges have more than {MAX_RANGE_ITEMS} items")
        return values


class _Bounding(jinja2.visitor.NodeTransformer):
    """Transformer that adds clock checks to loops and macros, and replaces `~` by a bounded function."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        """Add a clock check to the loop and to its condition, which may reject every item."""
        self.generic_visit(node)
        node.body.insert(0, _look(node))
        if node.test is not None:
            node.test = jinja2.nodes.And(_called("check_time", [], node), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: jinja2.nodes.Macro) -> jinja2.nodes.Node:
        """Add a clock check to the macro, because macros can call each other without any loop."""
        self.generic_visit(node)
        node.body.insert(0, _look(node))
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        """Replace the operator `~` by the bounded `concatenate`."""
        self.generic_visit(node)
        return _called("concatenate", node.nodes, node)


def _look(place: jinja2.nodes.Node) -> jinja2.nodes.Node:
    return jinja2.nodes.ExprStmt(_called("check_time", [], place), lineno=place.lineno)


def _called(name: str, arguments: list[jinja2.nodes.Expr], place: jinja2.nodes.Node) -> jinja2.nodes.Expr:
    """Return a call of one of the environment's methods."""
    method = jinja2.nodes.EnvironmentAttribute(name, lineno=place.lineno)
    return jinja2.nodes.Call(method, arguments, [], None, None, lineno=place.lineno)


def _check_length(length: int) -> None:
    if length > MAX_OUTPUT_CHARS:
        raise TemplateError(f"the rendered prompt exceeds {MAX_OUTPUT_CHARS} characters")


def _text(value: Any) -> str:
    """Return the value as text, or raise TemplateError before the text is too long."""
    return str(_shown(value))


def _shown(value: Any) -> Any:
    """Return the value itself, or raise TemplateError for a container whose text would be too long.

    A list may hold another one twice, which holds a third twice, and so on. Items count as often as they appear.
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
    """Return the items, or an attribute of each, joined to one text; the filter `join`."""
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
    """Return the joined text of the string method `join`."""
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
    """Return JSON as chat templates expect it, not escaped for HTML."""
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
    """Return the bits of an integer; 0 for other numbers, which have a fixed size."""
    return value.bit_length() if isinstance(value, int) else 0
