"""Patterns: the grammar allows exactly the characters that Python's own engine matches, and texts the client means."""

from __future__ import annotations

import re

import pytest

from engine.frontend.schemas.patterns import UnreadablePatternError, compiler_pattern
from tests.engine.frontend.schemas.answers import allows_value, compiled

CHARACTERS = [*map(chr, range(1, 0x7F)), "é", "☃", "\u2028", "😀"]


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize(
    "pattern",
    [
        *(r'^[^\\/:*?"<>|]$', '^[^"]$', r"^[^\\]$", "^[^ -/]$", r"^[\x00-!#-~]$", "^[\x00-!]$", r"^[\u0000-\u0021]$"),
        *(r"^[^\u0022]$", r'^[^a-z"]$', '^(?i)[^a"]$', '^(?:[^"]|x)$', r"^(?:[\x01-\x10]|[\x11-!])$", r"^[\x01-\x1f]$"),
        *(r'^[^\d"]$', r"^[^\d\\]$", r"^\D$", r"^[\D]$", r"^.$", r'^[^\n"]$', '^[^\n"]$', r'^[\t-\r"]$', r"^[\b]$"),
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
        *("^[]a]$", '^[^]"]$', r'^[^\]"]$', r"^[\-a-c]$", '^[^<>"]$', r'^[^\<"]$', r"^\<$", "^[^.]$", r'^"$', r"^\\$"),
        *('^(?P<stop>[^"])$', '[^"]', '^[^"\\\\]$', "^[!#-\\[\\]-~]$", "^[a-zA-Z0-9 ._-]$"),
    ],
)
def test_a_character_passes_exactly_where_it_matches(pattern: str) -> None:
    state, _ = compiled({"type": "string", "pattern": pattern})
    wanted = re.compile(pattern.replace("^(?i)", "(?i)^").replace("$", r"\Z"))
    wrong = [char for char in CHARACTERS if allows_value(state, char) != (wanted.search(char) is not None)]
    assert not wrong


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


@pytest.mark.parametrize("pattern", ["", "^a+$", "^[a-z_]{2,4}-[0-9]*$", r"(a|b)\.c\/d", r"^\w+\s?$"])
def test_a_pattern_without_such_a_class_stays(pattern: str) -> None:
    assert compiler_pattern(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", ["[[:alpha:]]", "[a[.b.]]", "(?x) a [ b ]", "(?ix:a)", r"\x00", "\0", r"\u{0}", "[a", "[a\\", "[a-"]
)
def test_what_cannot_be_translated_is_named(pattern: str) -> None:
    with pytest.raises(UnreadablePatternError):
        compiler_pattern(pattern)
