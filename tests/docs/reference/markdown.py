"""Markdown that the reference pages are made of, and the sentences that stand below fields in the source."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache

NOTE = "<!-- Generated from the code by `python -m tests.docs.reference`. Change the code, not this page. -->"


def page(title: str, introduction: str, *sections: str) -> str:
    """Return a whole page."""
    return "\n\n".join([NOTE, f"# {title}", introduction.strip(), *(part.strip() for part in sections)]) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """Return a headed section; empty parts are left out."""
    return "\n\n".join([f"{'#' * level} {title}", *(part for part in parts if part)])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [list(header), ["---"] * len(header), *(list(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Return text as inline code, nothing for empty text."""
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Return several texts as inline code."""
    return ", ".join(map(code, texts))


def one_line(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


@cache
def field_docs(owner: type) -> dict[str, str]:
    """Return field → the sentence below it, for a class and the classes that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(owner.__mro__[:-1]):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, TypeError):  # written in C
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                    found[name] = " ".join(sentence.split())
    return found


def _cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")
