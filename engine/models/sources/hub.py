"""Download from the Hugging Face hub, through its own library: its cache, token, offline mode and progress bar."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from engine.models.sources.errors import ModelSourceError
from engine.models.sources.reference import HubReference

_FOLDER_FILES: Final = ("*.json", "*.jinja", "*.safetensors")
"""Files of a model's folder that the engine reads: settings, tokenizer, chat template and weights."""
_OTHER_FILES: Final = ("*/*.json", "*/*.safetensors", "consolidated*.safetensors", "*.index.fp*.json")
"""Files that match as well and are never read: those in subfolders but for templates, and second copies of weights."""
_MAX_LISTED: Final = 8
_ENTER_TOKEN: Final = "set HF_TOKEN to a token of an account that may read it, or run `hf auth login`"


def download_folder(reference: HubReference) -> Path:
    """Return the folder of a model in Hugging Face layout, downloaded where the cache lacks it.

    Raises:
        ModelSourceError: The hub cannot be reached, refuses, or has no such model.
    """
    folder = _snapshot(reference, list(_FOLDER_FILES), list(_OTHER_FILES), download=True)
    _require_folder(reference, folder)
    return folder


def download_file(reference: HubReference) -> Path:
    """Return the path of one GGUF file, the first of its parts; all of them are downloaded where the cache lacks them.

    Raises:
        ModelSourceError: The hub cannot be reached, refuses, or has no such file.
    """
    assert reference.file is not None, "the caller names a file"
    folder = _snapshot(reference, [reference.file_pattern], None, download=True)
    path = folder / reference.file
    if not path.is_file():
        found = _listed([name for name in _files_on_hub(reference) if name.endswith(".gguf")])
        raise ModelSourceError(f"model: {reference.repo_id} has no file {reference.file}; its GGUF files: {found}")
    return path


def cached(reference: HubReference) -> Path | None:
    """Return the folder or GGUF file in the hub's cache, without any connection; None where it is not there whole."""
    try:
        if reference.file is not None:
            path = _snapshot(reference, [reference.file_pattern], None, download=False) / reference.file
            return path if path.is_file() else None
        folder = _snapshot(reference, list(_FOLDER_FILES), list(_OTHER_FILES), download=False)
        _require_folder(reference, folder)
    except ModelSourceError:
        return None
    return folder


def cache_dir() -> Path:
    """Return the folder of the hub's cache."""
    return Path(library("constants").HF_HUB_CACHE)


def _snapshot(reference: HubReference, patterns: list[str], ignored: list[str] | None, *, download: bool) -> Path:
    """Return the folder of one revision with the files that match.

    Raises:
        ModelSourceError: Some of them cannot be had.
    """
    hub, errors = library(), library("errors")
    try:
        folder = hub.snapshot_download(
            reference.repo_id,
            revision=reference.revision,
            allow_patterns=patterns,
            ignore_patterns=ignored,
            local_files_only=not download,
        )
    except errors.GatedRepoError as error:
        raise ModelSourceError(
            f"model: {reference.repo_id} needs its owner's consent: accept its terms on its page "
            f"at the hub, then {_ENTER_TOKEN}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelSourceError(
            f"model: the hub has no {reference.repo_id}, or it is private: check the name, or {_ENTER_TOKEN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelSourceError(f"model: {reference.repo_id} has no revision {reference.revision}") from error
    except errors.LocalEntryNotFoundError as error:
        raise ModelSourceError(_unreachable(reference)) from error
    except errors.HfHubHTTPError as error:
        raise ModelSourceError(f"model: the hub refuses {reference.repo_id}: {_first_line(error)}") from error
    except errors.HFValidationError as error:
        raise ModelSourceError(f"model: {reference}: {_first_line(error)}") from error
    except (OSError, errors.HTTPError) as error:
        if getattr(error, "errno", None) is not None and isinstance(error, OSError) and error.strerror:
            raise ModelSourceError(
                f"model: {reference} cannot be stored in {cache_dir()}: {error.strerror}; HF_HOME names another folder"
            ) from error
        raise ModelSourceError(
            f"model: the download of {reference} broke off ({_first_line(error)}); the same command "
            "goes on where it stopped"
        ) from error
    return Path(folder)


def _require_folder(reference: HubReference, folder: Path) -> None:
    """Check that a downloaded folder holds a model. Raises ModelSourceError."""
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return
    files = _files_on_hub(reference)
    if ggufs := [name for name in files if name.endswith(".gguf")]:
        example = HubReference(repo_id=reference.repo_id, revision=reference.revision, file=ggufs[0])
        raise ModelSourceError(
            f"model: {reference.repo_id} holds GGUF files; name one, such as {example}: {_listed(ggufs)}"
        )
    needed = "config.json" if not (folder / "config.json").is_file() else "weights as safetensors, which alone are read"
    raise ModelSourceError(f"model: {reference.repo_id} has no {needed}; its files: {_listed(files)}")


def _files_on_hub(reference: HubReference) -> list[str]:
    """Return the names of all files of a repository; empty where the hub does not answer."""
    hub, errors = library(), library("errors")
    try:
        return sorted(hub.HfApi().list_repo_files(reference.repo_id, revision=reference.revision))
    except (OSError, errors.HTTPError, errors.HfHubHTTPError):
        return []


def _unreachable(reference: HubReference) -> str:
    """Describe what to download and where to put it, for a machine without a connection."""
    constants = library("constants")
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
    revision = "" if reference.revision is None else f" --revision {reference.revision}"
    wanted = [reference.file] if reference.file is not None else [f"--include {each!r}" for each in _FOLDER_FILES]
    folder = "models--" + reference.repo_id.replace("/", "--")
    return (
        f"model: {reference} is not in {cache_dir()}, and {why}. Where there is a connection run "
        f"`hf download {reference.repo_id}{revision} {' '.join(wanted)}`, then copy the folder {folder} of its cache "
        f"to {cache_dir()}; or give the path of a folder or a GGUF file"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[:_MAX_LISTED]) + more) or "none that the hub tells of"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def library(module: str = "") -> Any:
    """Import the hub's library, which takes longer than the rest of a start.

    Raises:
        ModelSourceError: It is not installed.
    """
    try:
        return importlib.import_module(f"huggingface_hub{'.' if module else ''}{module}")
    except ImportError as error:
        raise ModelSourceError(
            "model: names of the hub need huggingface_hub; pip install 'penstock[engine]'"
        ) from error
