"""Inventory: the models on this machine, where they lie, and their removal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from engine.models.sources import hub
from engine.models.sources.description import bytes_of
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.packaged import PACKAGED, bundled_folder, bundled_names, uninstall

Kind = Literal["bundled", "package", "hub", "prepared"]

BUNDLED_NOTE: Final = "knows one made-up shop, sums and small text tasks; for tests and for routing with known truth"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model on this machine; `name` is what `--model` takes."""

    name: str
    kind: Kind
    place: Path
    num_bytes: int
    note: str = ""


def stored_models(prepared_dir: Path) -> Iterator[StoredModel]:
    """Yield every model on this machine; `prepared_dir` has a folder for each GGUF file that was prepared."""
    for name in bundled_names():
        folder = bundled_folder(name)
        assert folder is not None, "bundled names are those of folders"
        yield StoredModel(name=name, kind="bundled", place=folder, num_bytes=bytes_of(folder), note=BUNDLED_NOTE)
    for name, packaged in PACKAGED.items():
        if (file := packaged.path()) is not None:
            note = f"from the package {packaged.requirement}"
            yield StoredModel(name=name, kind="package", place=file, num_bytes=bytes_of(file), note=note)
    yield from _of_hub()
    if prepared_dir.is_dir():
        for folder in sorted(prepared_dir.iterdir()):
            if (folder / "config.json").is_file():
                note = "prepared from a GGUF file; made again when it is next used"
                num_bytes = sum(file.lstat().st_size for file in folder.iterdir())  # its weights are links
                yield StoredModel(name=str(folder), kind="prepared", place=folder, num_bytes=num_bytes, note=note)


def remove(model: StoredModel) -> None:
    """Remove a model's files.

    Raises:
        ModelSourceError: It is bundled, or its files cannot be removed.
    """
    removers: dict[Kind, Callable[[StoredModel], None]] = {
        "bundled": _refuse,
        "package": lambda found: uninstall(found.name, PACKAGED[found.name]),
        "hub": _remove_folder,
        "prepared": _remove_folder,
    }
    removers[model.kind](model)


def _of_hub() -> Iterator[StoredModel]:
    for repo in _repositories():
        ggufs = sorted(
            {file.file_name for one in repo.revisions for file in one.files if file.file_name[-5:] == ".gguf"}
        )
        refs = sorted({ref for one in repo.revisions for ref in one.refs})
        note = f"revisions: {', '.join(refs)}" if refs else ""
        if ggufs:
            note = f"{note}; " * bool(note) + f"GGUF files: {', '.join(ggufs)}"
        yield StoredModel(name=repo.repo_id, kind="hub", place=repo.repo_path, num_bytes=repo.size_on_disk, note=note)


def _repositories() -> list[Any]:
    """Return the models in the hub's cache, sorted by name."""
    if not hub.cache_dir().is_dir():
        return []
    found = [repo for repo in hub.library().scan_cache_dir(hub.cache_dir()).repos if repo.repo_type == "model"]
    return sorted(found, key=lambda repo: str(repo.repo_id))


def _remove_folder(model: StoredModel) -> None:
    try:
        shutil.rmtree(model.place)
    except OSError as error:
        raise ModelSourceError(f"model: {model.place} cannot be removed: {error.strerror or error}") from error


def _refuse(model: StoredModel) -> None:
    raise ModelSourceError(f"model: {model.name} is part of penstock and stays")
