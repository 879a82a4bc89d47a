"""The command line as a tree of commands, flags and values: what shell completion knows of the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ValueKind = Literal["none", "text", "file", "folder"]
"""Value of a flag or argument: a switch has none, and nothing is known of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedFlag:
    """A flag with all its spellings."""

    names: tuple[str, ...]
    text: str
    """Help text."""
    kind: ValueKind
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCommand:
    """A command, or a group of them."""

    words: tuple[str, ...]
    """Words after the program's name; none for the program itself."""
    text: str
    flags: tuple[CompletedFlag, ...]
    commands: tuple[CompletedCommand, ...]
    choices: tuple[str, ...]
    """Values of its argument, where they are a list."""
    takes_files: bool
    """True if an argument names a file, or goes to another program, which may take files."""

    def walk(self) -> Iterator[CompletedCommand]:
        """Yield the command and all below it."""
        yield self
        for command in self.commands:
            yield from command.walk()


def command_tree(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), text: str = "") -> CompletedCommand:
    """Return the tree of a parser and the parsers of its subcommands."""
    flags, commands, choices, takes_files = [], [], [], not parser.add_help
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: _plain(choice.help or "") for choice in action._choices_actions}
            commands += [
                command_tree(child, (*words, name), texts.get(name, "")) for name, child in action.choices.items()
            ]
        elif action.option_strings:
            flags.append(_flag_of(action, parser))
        else:
            choices += [str(choice) for choice in action.choices or ()]
            takes_files = takes_files or _kind_of(action) in ("file", "folder")
    return CompletedCommand(
        words=words,
        text=text,
        flags=tuple(flags),
        commands=tuple(commands),
        choices=tuple(choices),
        takes_files=takes_files,
    )


def _flag_of(action: argparse.Action, parser: argparse.ArgumentParser) -> CompletedFlag:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    choices = tuple(str(choice) for choice in action.choices or ())
    return CompletedFlag(names=tuple(action.option_strings), text=_plain(text), kind=_kind_of(action), choices=choices)


def _kind_of(action: argparse.Action) -> ValueKind:
    if action.nargs == 0:
        return "none"
    if action.type is not Path:
        return "text"
    return "folder" if action.metavar == "DIR" else "file"


def _plain(text: str) -> str:
    return " ".join(text.split())
