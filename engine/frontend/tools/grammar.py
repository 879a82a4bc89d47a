"""Grammars of response formats and tools in llguidance's JSON form."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from engine.frontend.request.json_schemas import unenforced_keywords
from engine.frontend.request.response_format import ResponseFormat
from engine.frontend.request.tools import ToolUse
from engine.frontend.tools.call_rules import call_rules, text_with_call_rules
from engine.frontend.tools.lark_rules import ANY_TEXT, ids_rule, json_rule, with_options
from engine.frontend.tools.reasoning_format import ReasoningFormat, ReasoningStart
from engine.frontend.tools.reasoning_rules import harmony_final, harmony_rules, reasoning_rules
from engine.frontend.tools.tagged_rules import unenforced_in_tags
from engine.frontend.tools.tool_format import ToolFormat

_AT: Final = re.compile(r"at (?P<line>\d+)\(\d+\): (?:failed to compile JSON schema: )?")
"""Beginning of the compiler's report: the line and the column in the grammar."""
_RULE_OF_TOOL: Final = re.compile(r"(?:object|named|call|arguments?)_(?P<place>\d+)[_:]")


@dataclass(frozen=True, slots=True)
class Grammar:
    """Grammar of an answer."""

    source: str
    param: str
    """Request field that the grammar comes from, for errors."""
    unenforced: tuple[str, ...] = ()
    """Keywords of schemas that are not strict and that the grammar does not enforce."""
    tools: tuple[str, ...] = ()
    """Paths of the schemas of the tools that may be called, in the order of their rules."""

    def fault(self, report: str) -> tuple[str, str]:
        """Return the field whose schema the compiler refused, and the reason without the place in the grammar."""
        found = _AT.match(report)
        if found is None:
            return self.param, report
        rules = json.loads(self.source)["grammars"][0].get("lark_grammar", "").split("\n")
        line = int(found["line"])
        rule = _RULE_OF_TOOL.match(rules[line - 1]) if 0 < line <= len(rules) else None
        reason = report[found.end() :]
        if rule is not None and int(rule["place"]) < len(self.tools):
            return self.tools[int(rule["place"])], reason
        return self.param, reason


def make_grammar(
    response_format: ResponseFormat | None,
    use: ToolUse | None,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None = None,
    start: ReasoningStart = "behind",
) -> Grammar | None:
    """Return the grammar of a request; None: any text.

    1. Forced tool choice: calls and nothing else.
    2. Schema and optional tools: an answer that follows the schema, or calls.
    3. Schema alone: an answer that follows it.
    4. Optional tools, one of them strict: any text in which the start of a call must become a valid call.
    5. Optional tools: any text; the parser finds the calls.

    Reasoning before the answer is free (see `reasoning_rules`).

    Raises:
        ApiError: A strict tool's schema cannot be enforced in the model's syntax (400).
    """
    schema = response_format.schema if response_format is not None else None
    is_strict = response_format is not None and response_format.is_strict
    if schema is None and not (use is not None and tool_format is not None and _constrains(use)):
        return None
    reasoning = None if start == "behind" else reasoning
    param = "tools" if schema is None else "response_format"
    unenforced = _unenforced(use, tool_format, None if is_strict else schema)
    if use is not None and tool_format is not None:
        body = _with_calls(schema, is_strict, use, tool_format, reasoning)
    else:
        assert schema is not None, "without tools, only a schema makes a grammar"
        if reasoning is None:
            source = {"grammars": [{"json_schema": with_options(schema, is_strict)}]}
            return Grammar(json.dumps(source), param, unenforced)
        body = f"body: {_answer(reasoning)}\nanswer: {json_rule(schema, is_strict)}\n"
    rules = _before_body(reasoning, start, has_schema=schema is not None) + body
    return Grammar(json.dumps({"grammars": [{"lark_grammar": rules}]}), param, unenforced, _schema_paths(use))


def _schema_paths(use: ToolUse | None) -> tuple[str, ...]:
    """Return the paths of the schemas of the tools that may be called."""
    if use is None:
        return ()
    places = {tool.function.name: place for place, tool in enumerate(use.tools)}
    return tuple(f"tools[{places[tool.function.name]}].function.parameters" for tool in use.allowed)


def _constrains(use: ToolUse) -> bool:
    """Return whether tools alone need a grammar."""
    return use.is_forced or any(tool.function.strict for tool in use.allowed)


def _before_body(reasoning: ReasoningFormat | None, start: ReasoningStart, *, has_schema: bool) -> str:
    """Return the rules of `start`, which ends with `body`."""
    if reasoning is None:
        return "start: body\n"
    if reasoning.family == "harmony":
        return harmony_rules(reasoning, has_commentary=not has_schema)
    return reasoning_rules(reasoning, start)


def _answer(reasoning: ReasoningFormat | None, content: str = "answer") -> str:
    """Return the right-hand side of an answer with this content, in a message of its own where the format has such."""
    is_message = reasoning is not None and reasoning.family == "harmony"
    return harmony_final(reasoning, content) if reasoning is not None and is_message else content


def _with_calls(
    schema: dict[str, Any] | None, is_strict: bool, use: ToolUse, form: ToolFormat, reasoning: ReasoningFormat | None
) -> str:
    """Return the rules of `body`: calls, or what may stand in their place."""
    rules = call_rules(use, form)
    if use.is_forced:
        return "body: calls\n" + rules
    if schema is not None:
        return f"body: calls | {_answer(reasoning)}\nanswer: {json_rule(schema, is_strict)}\n{rules}"
    if form.family == "harmony":
        free = " | ".join(filter(None, ("TEXT", ids_rule(form.other_ids))))
        return f"body: calls | {_answer(reasoning, f'({free})*')}\nTEXT: /{ANY_TEXT}+/\n{rules}"
    return text_with_call_rules(form) + rules


def _unenforced(use: ToolUse | None, form: ToolFormat | None, schema: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the unenforced keywords of the callable tools that are not strict, and of the answer's schema."""
    found = set() if schema is None else unenforced_keywords(schema)
    for tool in use.allowed if use is not None else ():
        if not tool.function.strict:
            found |= unenforced_keywords(tool.function.schema)
            if form is not None and form.has_tagged_arguments:
                found |= unenforced_in_tags(tool.function.schema, form)
    return tuple(sorted(found))
