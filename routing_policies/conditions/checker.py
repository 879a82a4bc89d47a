"""Grammar and types of conditions; an accepted condition is small, terminates, and yields true or false.

The accepted subset of CEL has these operators: `&& || ! == != < <= > >= in`, `+ - * / %`, `? :`, parentheses and lists
of constants. Its functions are `size`, and on text `startsWith`, `endsWith`, `contains` and `matches` with a constant
pattern. There are no macros: each of `all`, `exists`, `map` and `filter` is a loop, and nested loops let a short
expression run for years. The pattern engine is linear in the text. Counted repetition, whose cost is in the pattern, is
not accepted.

    condition := choice                       choice  := or [ "?" or ":" choice ]
    or        := and { "||" and }             and     := relation { "&&" relation }
    relation  := sum [ (== != < <= > >= in) sum ]
    sum       := product { (+ -) product }    product := unary { (* / %) unary }
    unary     := { ! - } member               member  := primary { "." name [ "(" … ")" ] | "[" … "]" }
"""

from __future__ import annotations

import re
from typing import Final, Literal

from routing_policies.conditions.tokens import ConditionError, ConditionToken, Kind, tokens
from routing_policies.policy.problems import did_you_mean

Type = Literal["bool", "int", "double", "string", "list of int", "list of double", "list of string", "empty list"]

MAX_CHARS: Final = 1_000
MAX_TOKENS: Final = 300
MAX_DEPTH: Final = 24
MAX_PATTERN_CHARS: Final = 200

REQUEST_FIELDS: Final[dict[str, Type]] = {
    "model": "string",
    "turns": "int",
    "prompt_bytes": "int",
    "has_tools": "bool",
    "has_images": "bool",
    "stream": "bool",
    "text": "string",
}
_VARIABLES: Final = ("request", "tenant", "headers")
_METHODS: Final = ("startsWith", "endsWith", "contains", "matches", "size")
_NUMBERS: Final = frozenset({"int", "double"})
_COMPARISONS: Final = frozenset({"<", "<=", ">", ">="})
_RELATIONS: Final = _COMPARISONS | {"==", "!=", "in"}
_HEADER: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_COUNTED: Final = re.compile(r"(?<!\\)\{")


class Checker:
    """Parser of one condition; `fields` and `headers` are the inputs that it reads."""

    def __init__(self, source: str) -> None:
        """Split the source into tokens; raises ConditionError."""
        if len(source) > MAX_CHARS:
            raise ConditionError(f"longer than {MAX_CHARS} characters", MAX_CHARS + 1)
        self._tokens = list(tokens(source))
        if len(self._tokens) > MAX_TOKENS:
            raise ConditionError(f"more than {MAX_TOKENS} words", self._tokens[MAX_TOKENS].at)
        self._next = 0
        self._depth = 0
        self.fields: set[str] = set()
        self.headers: set[str] = set()
        self.patterns: list[str] = []
        """Patterns as written, quotes included."""
        self.needs_tenant = False

    def check(self) -> None:
        """Check that the condition is well-formed and boolean; raises ConditionError."""
        start = self._peek()
        found = self._choice()
        if self._peek().kind != "end":
            raise self._unexpected()
        if found != "bool":
            raise ConditionError(f"a condition is true or false, this is {_a(found)}", start.at)

    def _choice(self) -> Type:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConditionError(f"nested deeper than {MAX_DEPTH}", self._peek().at)
        start = self._peek()
        found = self._or()
        if self._take("?"):
            self._require(found, "bool", start, "what stands before ?")
            then = self._or()
            self._expect(":")
            otherwise = self._choice()
            if then != otherwise:
                raise ConditionError(f"one side of : is {_a(then)}, the other {_a(otherwise)}", start.at)
            found = then
        self._depth -= 1
        return found

    def _or(self) -> Type:
        return self._logic("||", lambda: self._logic("&&", self._relation))

    def _logic(self, sign: str, side: object) -> Type:
        assert callable(side)
        start = self._peek()
        found: Type = side()
        while self._take(sign):
            self._require(found, "bool", start, f"the left side of {sign}")
            start = self._peek()
            self._require(side(), "bool", start, f"the right side of {sign}")
        return found

    def _relation(self) -> Type:
        left = self._sum()
        sign = self._peek()
        if sign.text not in _RELATIONS or sign.kind == "string":
            return left
        self._next += 1
        right = self._sum()
        if sign.text == "in":
            if right not in (f"list of {left}", "empty list"):
                raise ConditionError(f"{_a(left)} cannot be in {_a(right)}", sign.at)
        elif left != right or (sign.text in _COMPARISONS and left not in _NUMBERS | {"string"}):
            raise ConditionError(f"{_a(left)} and {_a(right)} cannot be compared with {sign.text}", sign.at)
        return "bool"

    def _sum(self) -> Type:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*", "/", "%"), self._unary))

    def _arithmetic(self, signs: tuple[str, ...], side: object) -> Type:
        assert callable(side)
        found: Type = side()
        while self._peek().kind == "sign" and self._peek().text in signs:
            sign = self._peek()
            self._next += 1
            other: Type = side()
            if found != other or found not in _NUMBERS or (sign.text == "%" and found == "double"):
                raise ConditionError(f"{_a(found)} and {_a(other)} have no {sign.text}", sign.at)
        return found

    def _unary(self) -> Type:
        sign = self._peek()
        if not (self._take("!") or self._take("-")):
            return self._member()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConditionError(f"nested deeper than {MAX_DEPTH}", sign.at)
        found = self._unary()
        self._depth -= 1
        if found not in ({"bool"} if sign.text == "!" else _NUMBERS):
            raise ConditionError(f"{sign.text} does not go before {_a(found)}", sign.at)
        return found

    def _member(self) -> Type:
        found = self._primary()
        while self._take("."):
            name = self._expect_kind("name")
            if name.text not in _METHODS:
                raise ConditionError(f"{_a(found)} has no {name.text}{did_you_mean(name.text, _METHODS)}", name.at)
            found = self._call(name, found)
        return found

    def _call(self, name: ConditionToken, on: Type) -> Type:
        self._expect("(")
        if name.text == "size":
            self._expect(")")
            return self._size_of(on, name)
        if on != "string":
            raise ConditionError(f"{name.text} is for text, this is {_a(on)}", name.at)
        argument = self._peek()
        self._require(self._choice(), "string", argument, f"what {name.text} is given")
        if name.text == "matches":
            self._check_pattern(argument)
        self._expect(")")
        return "bool"

    def _check_pattern(self, argument: ConditionToken) -> None:
        if argument.kind != "string" or self._tokens[self._next - 1] is not argument:
            raise ConditionError("a pattern is one text in quotes", argument.at)
        if len(argument.text) > MAX_PATTERN_CHARS or _COUNTED.search(argument.text):
            problem = f"a pattern has at most {MAX_PATTERN_CHARS} characters and no counted repetition such as a{{3}}"
            raise ConditionError(problem, argument.at)
        self.patterns.append(argument.text)

    def _size_of(self, on: Type, name: ConditionToken) -> Type:
        if on in ("bool", "int", "double"):
            raise ConditionError(f"{_a(on)} has no size", name.at)
        return "int"

    def _primary(self) -> Type:
        token = self._peek()
        self._next += 1
        if token.kind == "number":
            return "double" if "." in token.text else "int"
        if token.kind == "string":
            return "string"
        if token.text == "(":
            found = self._choice()
            self._expect(")")
            return found
        if token.text == "[":
            return self._list()
        if token.kind == "name":
            return self._variable(token)
        self._next -= 1
        raise self._unexpected()

    def _variable(self, token: ConditionToken) -> Type:
        if token.text in ("true", "false"):
            return "bool"
        if token.text == "size":
            self._expect("(")
            found = self._size_of(self._choice(), token)
            self._expect(")")
            return found
        if token.text == "tenant":
            self.needs_tenant = True
            return "string"
        if token.text == "headers":
            return self._header()
        if token.text == "request":
            self._expect(".")
            name = self._expect_kind("name")
            if name.text not in REQUEST_FIELDS:
                near = did_you_mean(name.text, list(REQUEST_FIELDS))
                raise ConditionError(f"request has no {name.text}{near}", name.at)
            self.fields.add(name.text)
            return REQUEST_FIELDS[name.text]
        raise ConditionError(f"{token.text} is not known{did_you_mean(token.text, _VARIABLES)}", token.at)

    def _header(self) -> Type:
        self._expect("[")
        name = self._expect_kind("string")
        if _HEADER.fullmatch(name.text[1:-1]) is None:
            raise ConditionError("expected a header's name in lower case, in quotes", name.at)
        self._expect("]")
        self.headers.add(name.text[1:-1])
        return "string"

    def _list(self) -> Type:
        """Parse a list of constants of one type."""
        if self._take("]"):
            return "empty list"
        kinds: set[Type] = set()
        while True:
            token = self._peek()
            if token.kind not in ("number", "string"):
                raise ConditionError("a list has constants in it, nothing else", token.at)
            kinds.add(self._primary())
            if len(kinds) > 1:
                raise ConditionError("a list has constants of one type in it", token.at)
            if not self._take(","):
                break
        self._expect("]")
        (kind,) = kinds
        return f"list of {kind}"  # type: ignore[return-value]

    def _peek(self) -> ConditionToken:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        token = self._peek()
        if token.kind == "sign" and token.text == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(text)

    def _expect_kind(self, kind: Kind) -> ConditionToken:
        token = self._peek()
        if token.kind != kind:
            raise self._unexpected(f"a {kind}")
        self._next += 1
        return token

    def _require(self, found: Type, wanted: Type, at: ConditionToken, what: str) -> None:
        if found != wanted:
            raise ConditionError(f"{what} must be {_a(wanted)}, this is {_a(found)}", at.at)

    def _unexpected(self, wanted: str = "") -> ConditionError:
        token = self._peek()
        found = "the end" if token.kind == "end" else token.text
        return ConditionError(f"expected {wanted}, found {found}" if wanted else f"did not expect {found}", token.at)


def _a(kind: Type) -> str:
    names = {"bool": "true or false", "int": "a whole number", "double": "a number with a point", "string": "text"}
    return names.get(kind, f"a {kind}" if kind.startswith("list") else "an empty list")
