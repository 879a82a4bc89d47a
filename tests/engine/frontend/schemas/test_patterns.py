"""Patterns: the grammar allows exactly the characters that Python's own engine matches, and texts the client means."""

from __future__ import annotations

import re

import pytest

from engine.frontend.request.errors import ApiError
from engine.frontend.schemas.patterns import UnreadablePatternError, compiler_pattern
from tests.engine.frontend.schemas.answers import allows_value, compiled

WHITE_SPACE = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
ODD_CHARACTERS = [*'\x01\t\n\v\f\r\x1c\x1f "\\1a_-\x85\xa0é\u0660\u180e\u200a\u200b\u2028\u2029\ufeff😀']
CHARACTERS = [*map(chr, range(1, 0x7F)), "é", "☃", "\u2028", "😀"]

UNREADABLE = [
    *(
        "[[:alpha:]]",
        "[a[.b.]]",
        "(?x) a [ b ]",
        "(?ix:a)",
        r"\x00",
        "\0",
        r"\u{0}",
        "[a",
        "[a\\",
        "[a-",
        "[^]",
        "[]a]",
    ),
    *(r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", r"^(?!\.)(?!.*\.\.)([a-z0-9_'+\-\.]*)[a-z0-9_+-]$", "^(?=.*[A-Z]).*$"),
    *(
        "(?<=a)b",
        "(?<!a)b",
        r"(a)\1",
        r"(?<n>a)\k<n>",
        "(?P<n>a)(?P=n)",
        r"\bfoo\b",
        r"\Bfoo",
        r"foo\Z",
        r"\cA",
        r"[\cA]",
    ),
    *(
        r"^\ud83d\ude00$",
        r"[\ud800-\udfff]",
        r"\u{d800}",
        r"\x1",
        r"\u12",
        r"[\Z]",
        r"\07",
        r"\a",
        "a{,3}",
        "(?m)a",
        "a(?s).b",
    ),
    *("^([a-z]+(,|$))+$", "(^a)?b", "a^b", "a$b", r"(^|a)b\A", r"a\z*"),
]
"""Patterns that the compiler cannot read, or would read otherwise; the first long one is Decimal of Pydantic, the
second an address of Zod."""


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize(
    "pattern",
    [
        *(r'^[^\\/:*?"<>|]$', '^[^"]$', r"^[^\\]$", "^[^ -/]$", r"^[\x00-!#-~]$", "^[\x00-!]$", r"^[\u0000-\u0021]$"),
        *(r"^[^\u0022]$", r'^[^a-z"]$', '^(?i)[^a"]$', '^(?:[^"]|x)$', r"^(?:[\x01-\x10]|[\x11-!])$", r"^[\x01-\x1f]$"),
        *(r'^[^\d"]$', r"^[^\d\\]$", r"^\D$", r"^[\D]$", r'^[^\n"]$', '^[^\n"]$', r'^[\t-\r"]$', r"^[\b]$"),
        *(
            "^[^[\\]]$",
            "^[[a]$",
            "^[a&&b]$",
            "^[+--]$",
            "^[^+--]$",
            "^[--/]$",
            "^[a~~b]$",
            "^[-a]$",
            "^[a-]$",
            "^[^-a]$",
        ),
        *(
            r"^[\0-!]$",
            r"^{[a]$",
            r'^[^\]"]$',
            r"^[\-a-c]$",
            '^[^<>"]$',
            r'^[^\<"]$',
            r"^\<$",
            "^[^.]$",
            r'^"$',
            r"^\\$",
        ),
        *('^(?P<stop>[^"])$', '[^"]', '^[^"\\\\]$', "^[!#-\\[\\]-~]$", "^[a-zA-Z0-9 ._-]$"),
    ],
)
def test_a_character_passes_exactly_where_it_matches(pattern: str) -> None:
    state, _ = compiled({"type": "string", "pattern": pattern})
    wanted = re.compile(pattern.replace("^(?i)", "(?i)^").replace("$", r"\Z"))
    wrong = [char for char in CHARACTERS if allows_value(state, char) != (wanted.search(char) is not None)]
    assert not wrong


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"^.$", "[^\n\r\u2028\u2029]"),
        (r"(?s)^.$", "(?s:.)"),
        (r"^\s$", f"[{WHITE_SPACE}]"),
        (r"^\S$", f"[^{WHITE_SPACE}]"),
        (r"^[\s\d]$", f"[0-9{WHITE_SPACE}]"),
        (r"^[^\s]$", f"[^{WHITE_SPACE}]"),
        (r"^[\S]$", f"[^{WHITE_SPACE}]"),
        (r"^[\S ]$", f"(?: |[^{WHITE_SPACE}])"),
        (r"^[^\S\n]$", f"(?!\n)[{WHITE_SPACE}]"),
        (r"^[\s\S]$", "(?s:.)"),
        (r"^\d$", "[0-9]"),
        (r"^\D$", "[^0-9]"),
        (r"^\w$", "[0-9A-Za-z_]"),
        (r"^\W$", "[^0-9A-Za-z_]"),
        (r"^[^\w-]$", "[^0-9A-Za-z_-]"),
    ],
)
def test_escapes_and_the_dot_are_those_of_ecma_262(pattern: str, same: str) -> None:
    state, _ = compiled({"type": "string", "pattern": pattern})
    wanted = re.compile(same)
    wrong = [char for char in ODD_CHARACTERS if allows_value(state, char) != (wanted.fullmatch(char) is not None)]
    assert not wrong


@pytest.mark.parametrize("pattern", [r"^.$", r"(?s)^.$", r"^\S$", r"^\D$", r"^\W$", r"^[\s\S]$", r"^[\W_]$", "^[^a]$"])
def test_no_part_of_a_pattern_matches_the_character_0(pattern: str) -> None:
    state, _ = compiled({"type": "string", "pattern": pattern})
    assert allows_value(state, "\x01")
    assert not allows_value(state, "\x00")


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^{a}$", "{a}", "a"),
        (r"^\é\>$", "é>", "e"),
        ("^(?<$a>b)(?<$a>c)$", "bc", "b"),
        (r"(^|,)a($|,)", "b,a", "ba"),
        (r"^(?:a$|b)", "bc", "ac"),
        (r"^$|^a{2}$", "aa", "a"),
        (r"\Aa\z", "a", "ab"),
    ],
)
def test_braces_signs_names_and_anchors_are_read(pattern: str, right: str, wrong: str) -> None:
    state, _ = compiled({"type": "string", "pattern": pattern})
    assert allows_value(state, right)
    assert not allows_value(state, wrong)


def test_a_unicode_property_is_read_without_its_quotes() -> None:
    state, _ = compiled({"type": "string", "pattern": r"^\P{Po}$"})
    assert [char for char in 'a"\\,é\n' if allows_value(state, char)] == ["a", "é", "\n"]
    state, _ = compiled({"type": "string", "pattern": r"^[\pC]$"})
    assert [char for char in 'a"\\\n' if allows_value(state, char)] == ["\n"]


def test_names_follow_their_patterns() -> None:
    schema = {
        "type": "object",
        "patternProperties": {'^[^"\\\\]+$': {"type": "integer"}},
        "additionalProperties": False,
    }
    state, _ = compiled(schema)
    assert allows_value(state, {"a": 1})
    assert not allows_value(state, {'a"b': 1})
    assert not allows_value(state, {"a\\b": 1})


@pytest.mark.parametrize("pattern", ["", "^a+$", "^[a-z_]{2,4}-[0-9]*$", r"(a|b)\.c\/d", r"^\w+\t?$"])
def test_a_pattern_without_such_a_part_stays(pattern: str) -> None:
    assert compiler_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", UNREADABLE)
def test_what_cannot_be_translated_is_named(pattern: str) -> None:
    with pytest.raises(UnreadablePatternError):
        compiler_pattern(pattern)


@pytest.mark.parametrize("pattern", UNREADABLE)
def test_an_unreadable_pattern_is_listed_or_under_strict_refused(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    state, unenforced = compiled(schema, strict=False)
    assert unenforced == ("pattern",)
    assert allows_value(state, "any text")
    with pytest.raises(ApiError, match=r"pattern: this engine cannot enforce .* must do without it") as caught:
        compiled(schema)
    assert caught.value.status == 400
