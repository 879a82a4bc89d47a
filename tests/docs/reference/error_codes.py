"""The page of error codes: found by reading every place in the source that names one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from gateway.errors import GatewayError, ShedReason
from tests.docs.reference.markdown import code, codes, one_line, page, section, table

_ROOT: Final = Path(__file__).resolve().parents[3]
_INTRODUCTION = """
Every error has one envelope, `{"error": {"message", "type", "param", "code"}}`. `x-penstock-error-code` repeats the
code where the gateway itself decided. A stream that fails after its first byte ends with the envelope as an event.
"""
_BESIDE = "Beside those of the public listener."
_FAILED = "The gateway failed; the log has the cause under the request id."
_HEADER = ("code", "status", "when")


class _Use(NamedTuple):
    """One place that answers with a code."""

    code: str
    status: int
    text: str
    is_admin: bool


def error_codes_page() -> str:
    """Return the page."""
    gateway = list(_gateway_uses())
    shed = "Values of `x-penstock-shed-reason` and of the metric label `reason`: " + codes(ShedReason) + "."
    return page(
        "Error codes",
        _INTRODUCTION,
        section("Gateway, public listener", _table(use for use in gateway if not use.is_admin), shed),
        section("Gateway, admin listener", _BESIDE, _table(use for use in gateway if use.is_admin)),
        section("Engine", _table(_engine_uses())),
    )


def _table(uses: Iterator[_Use]) -> str:
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for use in uses:
        found[use.code, use.status].append(use.text)
    rows = [(code(name), str(status), _joined(status, texts)) for (name, status), texts in found.items()]
    return table(_HEADER, sorted(rows))


def _joined(status: int, texts: list[str]) -> str:
    """What all places state, else what HTTP calls the status."""
    return " ".join(filter(None, dict.fromkeys(texts))) or f"{HTTPStatus(status).phrase}."


def _gateway_uses() -> Iterator[_Use]:
    """Codes of error classes, and those that a raise gives in place of its class's own."""
    for path in sorted((_ROOT / "gateway").rglob("*.py")):
        module = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        is_admin = module.startswith("gateway.admin")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and _assigned_code(node) is not None:
                kind = getattr(importlib.import_module(module), node.name)
                if isinstance(kind, type) and issubclass(kind, GatewayError) and kind is not GatewayError:
                    yield _Use(kind.code, kind.status, _description(kind), is_admin)
            if isinstance(node, ast.Call) and (given := _given_code(node)) is not None:
                raised = getattr(importlib.import_module(module), ast.unparse(node.func).partition(".")[0], None)
                if isinstance(raised, type) and issubclass(raised, GatewayError):
                    yield _Use(given, raised.status, _message(node), is_admin)
    yield _Use(GatewayError.code, GatewayError.status, _FAILED, False)


def _engine_uses() -> Iterator[_Use]:
    for path in sorted((_ROOT / "engine" / "frontend").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and (given := _given_code(node)) is not None:
                    status = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else 0
                    assert isinstance(status, int)
                    reported = one_line(ast.get_docstring(function)) if path.name == "errors.py" else _message(node)
                    yield _Use(given, status, _without_status(reported), False)


def _assigned_code(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(given))):
                return given
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(given))):
                return given
    return None


def _given_code(node: ast.Call) -> str | None:
    for keyword in node.keywords:
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            return keyword.value.value
    return None


def _message(node: ast.Call) -> str:
    """The message of a call, with `…` for what is put in at run time."""
    for argument in node.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value
        if isinstance(argument, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in argument.values)
            return "".join(map(str, parts))
    return ""


def _description(kind: type) -> str:
    """A class's own sentence, else its message."""
    reported = _without_status(one_line(kind.__doc__))
    if reported:
        return reported
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return next((message for call in calls if (message := _message(call))), "")


def _without_status(text: str) -> str:
    """A docstring without the status at its beginning, which has a column of its own."""
    text = re.sub(r"^\d{3}\W*", "", text)
    return text[:1].upper() + text[1:]
