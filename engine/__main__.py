"""Command line of one engine: `python -m engine`, also `penstock engine`."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import logging
import os
import sys
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import prometheus_client
import uvloop

from engine.config import SECTIONS, AnswerConfig, CoreConfig, EngineConfigError, FrontConfig
from engine.frontend.run import run_front
from engine.models.sources.command import MODEL_HELP
from engine.models.sources.command import main as manage_models
from engine.models.sources.source import model_name_of, resolve_model

_EPILOG = """\
also:       penstock engine steps, selftest, quantize (each has its own --help); penstock models
exit codes: 0 it ran until a signal, 2 a setting is wrong"""
_NEEDS_SOURCE = (
    "quantize: the texts and tasks that measure what it costs come with the source, not with the package; "
    "run it inside a checkout of the repository"
)
_UNITS = frozenset({"bytes", "dir", "endpoint", "ms", "ratio", "s"})
_METAVARS = {"lora": "NAME=PATH"}
_NAMED_APART = {"model_dir", "model_name", "listen"}
_SHORT = {"num_threads": ("--threads",), "draft_model_dir": ("--draft-model",)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the engine until a signal, or the subcommand that the first argument names.

    Returns:
        The exit status: 0 after a signal, 2 when a setting is wrong.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["quantize"]:
        if importlib.util.find_spec("engine.training") is None:
            print(f"engine: {_NEEDS_SOURCE}", file=sys.stderr)
            return 2
        # torch takes seconds to import, and serving never needs it in this process.
        from engine.selftest.quantize_command import main as quantize

        return quantize(arguments[1:])
    if arguments[:1] == ["selftest"]:
        from engine.selftest.command import main as selftest

        return selftest(arguments[1:])
    if arguments[:1] == ["models"]:
        return manage_models(arguments[1:])
    if arguments[:1] == ["steps"]:
        from engine.selftest.steps import main as steps

        return steps(arguments[1:])
    options = vars(make_parser().parse_args(arguments))
    logging.basicConfig(
        level=options.pop("log_level").upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series each
    os.umask(0o077)  # sockets and compiled code are this user's alone
    try:
        front, core = configs(options)
        uvloop.run(run_front(front, core, on_listening=lambda address: print(f"engine: {address}", flush=True)))
    except EngineConfigError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    return 0


def configs(options: dict[str, Any]) -> tuple[FrontConfig, CoreConfig]:
    """Build the two configurations from parsed options; an absent option keeps its default.

    Raises:
        EngineConfigError: The model cannot be had, or a setting is wrong.
    """
    model = str(options.pop("model_dir"))
    model_dir = resolve_model(model)
    name = options.pop("model_name", None) or model_name_of(model)
    answers = {field.name: options.pop(field.name) for field in fields(AnswerConfig) if field.name in options}
    front_names = {field.name for field in fields(FrontConfig)}
    front = {key: value for key, value in options.items() if key in front_names}
    core = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in options.items()
        if key not in front_names
    }
    front_config = FrontConfig(model_name=name, answers=AnswerConfig(**answers), **front)
    return front_config, CoreConfig.of(model_dir=model_dir, **core)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of `penstock engine`, with one flag for every setting of the two configurations."""
    parser = argparse.ArgumentParser(
        prog="penstock engine",
        description="Serve one model over OpenAI's HTTP API.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", dest="model_dir", required=True, metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--listen", default="127.0.0.1:8000", help="unix:/path or host:port (default %(default)s)")
    parser.add_argument("--name", dest="model_name", default=argparse.SUPPRESS, help="model name in requests")
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="least urgent line of the log that is written (default %(default)s)",
    )
    sections: tuple[type[Any], ...] = (FrontConfig, AnswerConfig, *SECTIONS.values())
    for config in sections:
        hints, descriptions = typing.get_type_hints(config), _setting_descriptions(config)
        for field in fields(config):
            if field.name not in _NAMED_APART and field.default is not MISSING:
                _add_flag(parser, field.name, hints[field.name], field.default, descriptions.get(field.name, ""))
    return parser


def _setting_descriptions(config: type) -> dict[str, str]:
    """Read the docstring below each field of `config`, joined to one line; used as the help text of its flag.

    Returns:
        Field name to text; empty when the source code is not available.
    """
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    except (OSError, SyntaxError):
        return {}
    assert isinstance(body, ast.ClassDef), "the source of a class is a class"
    descriptions: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                descriptions[name] = " ".join(sentence.split())
    return descriptions


def _add_flag(parser: argparse.ArgumentParser, name: str, kind: Any, default: object, description: str) -> None:
    """Add `--some-name` for a field, or `--some-name/--no-some-name` for a boolean; an absent flag sets no option."""
    flags = (f"--{name.replace('_', '-')}", *_SHORT.get(name, ()))
    usual = f"default {'none' if default in ('', None, ()) else default}"
    text = f"{description.rstrip('.')} ({usual})" if description else usual
    common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text.replace("%", "%%")}
    if kind is not bool and typing.get_origin(kind) is not typing.Literal:
        unit = name.rpartition("_")[2]
        common["metavar"] = _METAVARS.get(name) or (unit.upper() if unit in _UNITS else "N")
    if kind is bool:
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **common)
    elif typing.get_origin(kind) is tuple:
        parser.add_argument(*flags, action="append", **common)
    elif typing.get_origin(kind) is typing.Literal:
        parser.add_argument(*flags, choices=typing.get_args(kind), **common)
    else:
        parser.add_argument(*flags, type=_scalar(kind), **common)


def _scalar(kind: Any) -> type:
    """Return the type that parses a flag's value: X for `X | None`."""
    members = [member for member in typing.get_args(kind) if member is not type(None)]
    return typing.cast(type, members[0] if members else kind)


if __name__ == "__main__":
    sys.exit(main())
