"""From what a user calls a model to its folder: `resolve_model`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.models.gguf.folder import prepare_folder
from engine.models.sources import hub
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.packaged import PACKAGED, bundled_folder, bundled_names
from engine.models.sources.reference import HubReference, parse_reference

_GGUF: Final = ".gguf"


def resolve_model(text: str) -> Path:
    """Return the folder, in Hugging Face layout, of the model that `text` names.

    A model of the hub is downloaded where the hub's cache lacks it. A GGUF file is prepared once.

    Args:
        text: A folder, a GGUF file (the first part of a split one), the name of a bundled or packaged model, or a
            hub's `org/name[@revision]` or `org/name:file.gguf`.

    Raises:
        ModelSourceError: There is no such model, or it cannot be had.
    """
    place = _local(text)
    if place is None:
        reference = _reference(text)
        place = hub.download_folder(reference) if reference.file is None else hub.download_file(reference)
    return place if place.is_dir() else prepare_folder(place)


def find_model(text: str) -> Path | None:
    """Return the folder or GGUF file of a model that is on this machine; None for one of the hub that is not.

    Nothing is downloaded or prepared.

    Raises:
        ModelSourceError: `text` names no model.
    """
    return _local(text) or hub.cached(_reference(text))


def model_name_of(text: str) -> str:
    """Return the name that clients use for a model: of a path its last part, of the hub `org/name`."""
    path = Path(text).expanduser()
    if path.is_dir():
        return path.resolve().name
    if path.is_file():
        return path.name.removesuffix(_GGUF)
    reference = parse_reference(text)
    if reference is None:
        return text
    return reference.repo_id if reference.file is None else Path(reference.file).name.removesuffix(_GGUF)


def _local(text: str) -> Path | None:
    """Return the folder or the GGUF file that a text names on this machine; None where it names neither.

    Raises:
        ModelSourceError: The path, or the packaged model, is unusable.
    """
    path = Path(text).expanduser()
    if text and path.is_dir():
        return path.resolve()
    if path.is_file():
        if path.suffix != _GGUF:
            raise ModelSourceError(f"model: {path}: expected a folder in Hugging Face layout or a file {_GGUF}")
        return path.absolute()
    packaged = PACKAGED.get(text)
    if packaged is None:
        return bundled_folder(text)
    if (gguf := packaged.path()) is None:
        raise ModelSourceError(f"model: {text} is not installed; penstock models pull {text}")
    return gguf


def _reference(text: str) -> HubReference:
    """Return the hub's name in a text that names nothing here. Raises ModelSourceError."""
    reference = parse_reference(text)
    is_path = text.startswith(("/", ".", "~")) or (text.count("/") > 1 and ":" not in text and "@" not in text)
    if is_path or (reference is None and text.endswith(_GGUF) and ":" not in text):
        kind = "file" if text.endswith(_GGUF) else "folder"
        raise ModelSourceError(
            f"model: {text}: no such {kind}; expected a folder in Hugging Face layout or a GGUF file"
        )
    if reference is None:
        names = ", ".join((*bundled_names(), *PACKAGED))
        raise ModelSourceError(
            f"model: {text}: no such model; expected a folder, a GGUF file, a name (one of {names}), or a name of the "
            "hub: org/name[@revision] or org/name:file.gguf"
        )
    return reference
