"""Manage models on this machine: `penstock models list | pull | rm | info`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from engine.config import EngineConfigError
from engine.models.gguf.folder import default_cache_dir
from engine.models.sources.description import ModelDescription, describe_model
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.inventory import StoredModel, remove, stored_models
from engine.models.sources.packaged import PACKAGED, install
from engine.models.sources.source import find_model, model_name_of, resolve_model

MODEL_HELP: Final = (
    "folder, GGUF file, name that `penstock models list` prints, or one of the hub: org/name[@revision], "
    "org/name:file.gguf"
)


def main(arguments: Sequence[str]) -> int:
    """Run one action and return the exit status: 0 it worked, 1 it did not, 2 an argument is wrong."""
    options = make_models_parser().parse_args(arguments)
    action: Callable[[argparse.Namespace], None] = options.action
    try:
        action(options)
    except EngineConfigError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    return 0


def make_models_parser() -> argparse.ArgumentParser:
    """Build the parser of `penstock models`."""
    parser = argparse.ArgumentParser(prog="penstock models", description="Manage the models on this machine.")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add(actions, "list", _list, "list the models on this machine, with their sizes")
    pull = _add(actions, "pull", _pull, "download models of the hub, or install packaged ones")
    pull.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    info = _add(actions, "info", _info, "print what is known of a model without loading it")
    info.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    rm = _add(actions, "rm", _rm, "remove a model from this machine; asks first")
    rm.add_argument("model", metavar="MODEL", help="name that `list` prints")
    rm.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    action: Callable[[argparse.Namespace], None],
    text: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(action=action)
    return parser


def _list(options: argparse.Namespace) -> None:
    found = list(stored_models(default_cache_dir()))
    if options.json:
        _print_json([{**asdict(model), "place": str(model.place)} for model in found])
        return
    width = max(len(model.name) for model in found)
    for model in found:
        print(f"{model.name:<{width}}  {model.kind:<8}  {_size(model.num_bytes):>9}  {model.note}".rstrip())
    for name, packaged in PACKAGED.items():
        if packaged.path() is None:
            print(f"{name}: not installed; penstock models pull {name} fetches {_size(packaged.num_bytes)}")


def _pull(options: argparse.Namespace) -> None:
    descriptions = [_pulled(text) for text in options.models]
    if options.json:
        _print_json(descriptions)
        return
    for found in descriptions:
        print(f"{found.name}: {_size(found.num_bytes)} in {found.folder}")


def _pulled(text: str) -> ModelDescription:
    packaged = PACKAGED.get(text)
    if packaged is not None and packaged.path() is None and not Path(text).exists():
        print(f"installing {packaged.requirement}, {_size(packaged.num_bytes)}", file=sys.stderr, flush=True)
        install(text, packaged)
    return describe_model(model_name_of(text), resolve_model(text))


def _info(options: argparse.Namespace) -> None:
    if find_model(options.model) is None:
        raise ModelSourceError(f"model: {options.model} is not on this machine; penstock models pull {options.model}")
    found = describe_model(model_name_of(options.model), resolve_model(options.model))
    if options.json:
        _print_json(found)
        return
    context = "not stated" if found.context_tokens is None else f"{found.context_tokens:,} tokens"
    talks = "yes" if found.has_chat_template else "no: it continues texts and holds no conversation"
    print(f"name           {found.name}\narchitecture   {found.architecture}\ncontext        {context}")
    print(f"chat template  {talks}\nsize           {_size(found.num_bytes)}\nfolder         {found.folder}")


def _rm(options: argparse.Namespace) -> None:
    model = _stored(options.model)
    if not (options.yes or _confirmed(model)):
        raise ModelSourceError(f"model: {model.name} stays; --yes removes it without asking")
    remove(model)
    if options.json:
        _print_json({"removed": model.name, "num_bytes": model.num_bytes})
    else:
        print(f"removed {model.name}: {_size(model.num_bytes)}")


def _stored(name: str) -> StoredModel:
    """Return the model that `list` shows under a name. Raises ModelSourceError."""
    found = [model for model in stored_models(default_cache_dir()) if model.name == name]
    if not found:
        raise ModelSourceError(f"model: {name} is not on this machine; penstock models list shows what is")
    return found[0]


def _confirmed(model: StoredModel) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"remove {model.name}, {_size(model.num_bytes)}? [y/N] ").strip().lower() in ("y", "yes")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def _print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())
