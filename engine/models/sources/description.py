"""ModelDescription: what a model is, read from its folder's settings without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.models.sources.errors import ModelSourceError

_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a model that are known before it is loaded."""

    name: str
    folder: str
    architecture: str
    context_tokens: int | None
    """Context length in tokens, as the checkpoint states it."""
    has_chat_template: bool
    """False for a model that continues texts and holds no conversation."""
    num_bytes: int
    """Size of the folder in bytes."""


def describe_model(name: str, folder: Path) -> ModelDescription:
    """Return the description of the model in a folder.

    Raises:
        ModelSourceError: The folder holds no model.
    """
    config = _object(folder / "config.json")
    text = config.get("text_config")
    shape: Mapping[str, Any] = text if isinstance(text, dict) else config
    context = shape.get("max_position_embeddings")
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    return ModelDescription(
        name=name,
        folder=str(folder),
        architecture=str(named or "unknown"),
        context_tokens=context if isinstance(context, int) and context > 0 else None,
        has_chat_template=_has_template(folder),
        num_bytes=bytes_of(folder),
    )


def bytes_of(place: Path) -> int:
    """Return the bytes of a file or of all files below a folder; a linked file counts with what it leads to."""
    files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in _TEMPLATES):
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(_object(settings).get("chat_template"))


def _object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelSourceError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelSourceError(f"model: {path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelSourceError(f"model: {path}: is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelSourceError(f"model: {path}: expected a JSON object, got {type(content).__name__}")
    return content
