"""Finder of the variables and members that a chat template reads, in its syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

_MEMBERS: Final = ("reasoning_content", "reasoning", "thinking")


def reasoning_member(tree: nodes.Template) -> str | None:
    """Return the member of an assistant message that the template reads as its reasoning; None: it reads none."""
    read = {node.attr for node in tree.find_all(nodes.Getattr)}
    for node in tree.find_all(nodes.Getitem):
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            read.add(node.arg.value)
    return next((name for name in _MEMBERS if name in read), None)


def compared_texts(tree: nodes.Template, name: str) -> frozenset[str]:
    """Return the texts with which the template compares a variable."""
    found: set[str] = set()
    for compare in tree.find_all(nodes.Compare):
        operands = [compare.expr, *(operand.expr for operand in compare.ops)]
        if any(isinstance(operand, nodes.Name) and operand.name == name for operand in operands):
            found.update(text for operand in operands for text in _texts(operand))
    return frozenset(found)


def _texts(node: nodes.Node) -> Iterator[str]:
    """Yield the constant texts in an operand; Jinja may have folded a list of them into one constant."""
    for constant in [node] if isinstance(node, nodes.Const) else node.find_all(nodes.Const):
        values = constant.value if isinstance(constant.value, list | tuple) else [constant.value]
        yield from (value for value in values if isinstance(value, str))
