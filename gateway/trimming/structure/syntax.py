"""Syntax of program text: how blocks are marked, and which line may stand for what is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.trimming.structure.segment import MARK

_INDENTED: Final = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+\s*\(|class \w+\s*[(:]|(?:if|for|while|with|try|elif|else"
    r"|except)\b[^\n{;]*:[ \t]*(?:#|$)"
    r"|from [\w.]+ import |import [\w.]+(?: as \w+)?[ \t]*$|\w+ = [^;\n]*[^;{\n]$)",
    re.MULTILINE,
)
_BRACED: Final = re.compile(r"[{;][ \t]*(?://.*)?$", re.MULTILINE)
_LITERAL: Final = re.compile(r"^[A-Za-z_]\w*(?:: [\w\[\], ]+)? = [\[({][ \t]*$", re.MULTILINE)
"""Literal that is bound to a name without a keyword, as in Python."""
_HASH_LINE: Final = re.compile(r"^[ \t]*#(?!\s*(?:include|define|if|endif|else|pragma|undef|\[|!?\[))", re.MULTILINE)
_SLASH_LINE: Final = re.compile(r"^[ \t]*(?:///?|/?\*)", re.MULTILINE)
_STYLE_LINE: Final = re.compile(
    r"^[ \t]*[a-z-]+:\s[^;{}\n]+;[ \t]*$|^[.#@:*a-z][^;{}()=]{0,500}\{[ \t]*$", re.MULTILINE
)
_SQL_LINE: Final = re.compile(r"^(?:INSERT INTO|CREATE TABLE|SELECT|UPDATE|DELETE FROM|ALTER TABLE|--)\b", re.MULTILINE)
_STYLES: Final = frozenset({"css", "scss", "less"})
_OF_LANGUAGE: Final[Mapping[str, tuple[bool, str]]] = {
    **dict.fromkeys(("python", "py", "python3", "pyi", "ruby", "rb", "elixir", "nim", "julia"), (True, "# {}")),
    **dict.fromkeys(("bash", "sh", "shell", "zsh", "perl", "r", "makefile", "dockerfile", "tcl"), (False, "# {}")),
    **dict.fromkeys(("sql", "postgresql", "mysql", "sqlite", "haskell"), (False, "-- {}")),
    "lua": (True, "-- {}"),
    **dict.fromkeys(_STYLES, (False, "/* {} */")),
    **dict.fromkeys(
        (
            *("c", "h", "cpp", "c++", "hpp", "cc", "java", "javascript", "js", "jsx", "mjs", "typescript", "ts", "tsx"),
            *("go", "golang", "rust", "rs", "swift", "kotlin", "kt", "scala", "csharp", "cs", "c#", "php", "dart"),
            *("objc", "jsonc", "json5", "groovy", "solidity", "proto", "protobuf"),
        ),
        (False, "// {}"),
    ),
}


class Syntax(NamedTuple):
    """How a language marks blocks and comments."""

    is_indented: bool
    """True where blocks are marked by indentation, as in Python."""
    comment: str
    """Comment, with `{}` for its text."""

    def mark_line(self, indent: str = "") -> str:
        """Return the comment that marks a gap."""
        return f"{indent}{self.comment.format(MARK)}\n"


def syntax_of(text: str, language: str = "") -> Syntax:
    """Return the syntax of a language, or of a text in an unknown one."""
    known = _OF_LANGUAGE.get(language)
    if known is not None:
        return Syntax(*known)
    num_braced = len(_BRACED.findall(text))
    if len(_INDENTED.findall(text)) + 2 * len(_LITERAL.findall(text)) > num_braced:
        return Syntax(is_indented=True, comment="# {}")
    if 2 * len(_STYLE_LINE.findall(text)) > len(text.splitlines()) - text.count("\n\n") - text.count("}\n"):
        return Syntax(is_indented=False, comment="/* {} */")
    if len(_SQL_LINE.findall(text)) > num_braced / 2:
        return Syntax(is_indented=False, comment="-- {}")
    is_hashed = len(_HASH_LINE.findall(text)) > len(_SLASH_LINE.findall(text))
    return Syntax(is_indented=False, comment="# {}" if is_hashed else "// {}")


def is_program(text: str, language: str) -> bool:
    """Return whether a fence holds program text: by its language, or without one by the ends of its lines."""
    if language:
        return language in _OF_LANGUAGE
    num_lines = sum(not line.isspace() for line in text.splitlines(keepends=True))
    num_code = len(_INDENTED.findall(text)) + len(_BRACED.findall(text))
    return "|" not in text[:1] and 5 * num_code >= num_lines
