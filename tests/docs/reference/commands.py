"""The page of the command line: every command with every flag."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from engine.__main__ import make_parser
from engine.models.sources.command import make_models_parser
from engine.selftest import command as selftest
from engine.selftest import quantize_command, steps
from gateway.cli.main import build_parser
from tests.docs.reference.markdown import code, page, section, table

_INTRODUCTION = """
Exit codes: 0 it worked, 1 it did not, 2 a setting or an argument is wrong. Flags win over variables and
`penstock.toml`, see [settings](settings.md). `penstock bench` has [a page of its own](benches.md).
"""
_DEFAULTS = frozenset({"help", "version"})


def commands_page() -> str:
    """Return the page."""
    engine = (make_models_parser(), make_parser(), steps._parser(), selftest._parser(), quantize_command._parser())
    sections = [*_sections(build_parser()), *(part for parser in engine for part in _sections(parser))]
    return page("Command line", _INTRODUCTION, *sections)


def _sections(parser: argparse.ArgumentParser, reported: str = "") -> Iterator[str]:
    """One section for a command that runs, and those of the commands below it."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        text = reported or (parser.description or "").partition("\n\n")[0]
        rows = flag_rows(parser)
        yield section(code(parser.prog), _sentence(text), table(("flag", "value", "meaning"), rows) if rows else "")
    for action in below:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, child in action.choices.items():
            if child.add_help:  # the others hand their arguments to a parser of their own
                yield from _sections(child, helps.get(name, ""))


def flag_rows(parser: argparse.ArgumentParser) -> list[tuple[str, str, str]]:
    """Return flag, value and meaning of everything that a command takes."""
    actions = (action for action in parser._actions if action.dest not in _DEFAULTS)
    return [(_name(action), _value(action), _help_text(action, parser)) for action in actions]


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return code(str(action.metavar or action.dest))
    return ", ".join(map(code, action.option_strings)) + (" (required)" if action.required else "")


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return ", ".join(code(str(choice)) for choice in action.choices)
    if action.nargs == 0 or not action.option_strings:
        return ""
    metavar = action.metavar or action.dest.upper()
    return code(metavar if isinstance(metavar, str) else " ".join(metavar))


def _help_text(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    if not action.help:
        return ""
    return parser._get_formatter()._expand_help(action)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) or not text else ".")
