"""Parts that all commands about a running gateway share: their parsers, and how they print."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gateway.cli.admin_client import add_connection
from gateway.cli.supervisor.console import plain


def add_action(
    actions: Any, name: str, command: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    """Add a subcommand that talks to a gateway, and return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text)
    parser.set_defaults(command=command)
    add_connection(parser)
    return parser


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    import msgspec

    print(msgspec.json.encode(value).decode())


def print_done(options: argparse.Namespace, found: Any, help_text: str) -> int:
    """Print what was done, for people or with `--json` for programs; return the exit code."""
    if options.json:
        print_json(found)
    else:
        print(plain(help_text))
    return 0
