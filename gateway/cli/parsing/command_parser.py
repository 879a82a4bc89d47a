"""CommandParser: argparse whose errors name what was probably meant, and the help that lists everything."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

EXIT_USAGE: Final = 2
_CUTOFF: Final = 0.6
"""Least likeness of two words, from 0 to 1, at which one is suggested for the other."""
_NAME_COLUMNS: Final = 14
_ALSO_CALLED: Final = {
    "config": "policy",
    "key": "keys",
    "log": "audit",
    "logs": "audit",
    "ps": "top",
    "run": "up",
    "serve": "gateway",
    "server": "gateway",
    "start": "up",
    "stats": "top",
    "status": "top",
    "validate": "check",
}
"""Names of other programs' commands, and the command here that does the work."""


class CommandListFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that leaves room for the longest command before the help texts."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = _NAME_COLUMNS


class CommandParser(argparse.ArgumentParser):
    """A parser of one command; subcommands are parsers of the same class."""

    def error(self, message: str) -> NoReturn:
        """Print one line with the error and one with the next command, and exit with 2."""
        stated = message.removeprefix("argument ")
        self.exit(EXIT_USAGE, f"{self.prog}: {stated}\n{self.prog} --help lists what it takes\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse what is unknown here: the command that does not know it can name its own flags."""
        given = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown_flags(given)
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error(f"unexpected argument '{unknown[0]}'")
        return found, []

    def _refuse_unknown_flags(self, arguments: Sequence[str]) -> None:
        """Refuse the first unknown flag before argparse complains of what is missing, maybe for that very reason."""
        is_group = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--" or (is_group and not argument.startswith("-")):
                return  # a group's own flags stand before the subcommand
            flag = argument.partition("=")[0]
            if flag.startswith("--") and not any(name.startswith(flag) for name in known):
                hint = suggestion(flag, known) or ("; flags stand after the command" if is_group else "")
                self.error(f"unknown flag {flag}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            what = "command" if action.metavar == "COMMAND" else "action"
            raise argparse.ArgumentError(None, f"unknown {what} '{value}'{suggestion(value, known)}")
        raise argparse.ArgumentError(
            action, f"expected one of {', '.join(known)}, got '{value}'{suggestion(value, known)}"
        )


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message that names the nearest known word; empty when none is near."""
    names = list(known)
    other_name = _ALSO_CALLED.get(word)
    if other_name in names:
        return f"; did you mean {other_name}?"
    near = difflib.get_close_matches(word, names, n=1, cutoff=_CUTOFF) or [
        name for name in names if len(word) > 1 and name.startswith(word)
    ]
    return f"; did you mean {near[0]}?" if near else ""


def command_group(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[CommandParser]:
    """Make a parser one of subcommands only; without any of them it prints its help as an error."""

    def print_help(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return EXIT_USAGE

    parser.set_defaults(command=print_help)
    return parser.add_subparsers(title="actions", metavar="ACTION", parser_class=CommandParser)
