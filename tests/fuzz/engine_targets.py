"""What the engine reads from strangers: schemas, GGUF, safetensors and tokenizer files, as functions of bytes."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from engine.config import EngineConfigError
from engine.frontend.request.errors import ApiError
from engine.frontend.request.json_schemas import check_schema
from engine.frontend.request.response_format import NamedSchema, ResponseFormat
from engine.frontend.text.tokenizer import load_tokenizer
from engine.frontend.tools.grammar import make_grammar
from engine.models.gguf.container import GgufError
from engine.models.gguf.folder import folder_contents
from engine.models.gguf.parts import GgufModel
from engine.models.loading.sizes import read_checked_config
from engine.sampling.grammar import GrammarError
from engine.sampling.grammar_checker import GrammarChecker

BUNDLED = Path(__file__).parents[2] / "engine" / "bundled" / "models" / "penstock-small"


@cache
def _folder() -> Path:
    """A folder for the files of this process, removed at its end."""
    holder = tempfile.TemporaryDirectory(prefix="fuzz")
    _HOLDERS.append(holder)
    return Path(holder.name)


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _checker() -> GrammarChecker:
    config = json.loads((BUNDLED / "config.json").read_text())
    return GrammarChecker(BUNDLED, config["vocab_size"])


def grammar(data: bytes) -> None:
    """A JSON Schema of a client is refused, or becomes a grammar that compiles or is refused in time."""
    try:
        schema: Any = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(schema, dict):
        return
    try:
        check_schema(schema, "response_format")
        named = NamedSchema(name="fuzz", schema=schema, strict=bool(data[-1] % 2))
        made = make_grammar(ResponseFormat(type="json_schema", json_schema=named), None, None)
        assert made is not None
        _checker().check(made.source)
    except (ApiError, GrammarError):
        return


def gguf(data: bytes) -> None:
    """A GGUF file is refused, or gives the files of a model folder."""
    path = _folder() / "m.gguf"
    path.write_bytes(data)
    try:
        folder_contents(GgufModel([path]))
    except GgufError:
        return


def safetensors(data: bytes) -> None:
    """Weights beside a config that is right for the bundled model."""
    folder = _folder() / "weights"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes((BUNDLED / "config.json").read_bytes())
    (folder / "model.safetensors").write_bytes(data)
    try:
        read_checked_config(folder)
    except EngineConfigError:
        return


def model_config(data: bytes) -> None:
    """A config.json without weights."""
    folder = _folder() / "config"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(data)
    try:
        read_checked_config(folder)
    except EngineConfigError:
        return


def tokenizer(data: bytes) -> None:
    """A tokenizer.json is refused, or encodes and decodes."""
    folder = _folder() / "tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(data)
    try:
        found = load_tokenizer(folder)
    except EngineConfigError:
        return
    found.decode(found.encode_text("Hello, world! 12"))
