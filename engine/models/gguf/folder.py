"""Model folder made from a GGUF file: small files in Hugging Face layout beside links to the weights.

The folder is made once and kept in a cache. Its name holds a digest of the file's path, size and time of change, so a
changed file gets a folder of its own. A folder is renamed into place when it is complete; of two processes that make
the same one, the first wins.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.models.gguf.container import GgufError
from engine.models.gguf.model_config import make_config
from engine.models.gguf.parts import GgufModel, find_parts, model_name
from engine.models.gguf.tokenizer_files import make_tokenizer, make_tokenizer_config
from engine.models.gguf.vocabulary import read_vocabulary

_FORM = 3
"""Number of the content's form; another one makes all folders anew."""
_DIGEST_CHARS = 12
_SOURCE_FILE = "source.json"
_MAX_NAME_CHARS = 80


def prepare_folder(gguf: Path, cache_dir: Path | None = None) -> Path:
    """Return the model folder of a GGUF file, made at the first call.

    Args:
        gguf: The file, or any part of a split one.
        cache_dir: Parent of such folders; None: `penstock/models` in the user's cache.

    Returns:
        The folder, with config.json, tokenizer.json, tokenizer_config.json, generation_config.json and links to the
        parts of the file.

    Raises:
        GgufError: The file is damaged or not supported, or the cache cannot be written.
    """
    parts = [part.resolve() for part in find_parts(gguf)]
    cache_dir = cache_dir or default_cache_dir()
    source = _source(parts)
    folder = cache_dir / _entry_name(gguf, source)
    if _is_complete(folder, source):
        return folder
    contents = {**folder_contents(GgufModel(parts)), _SOURCE_FILE: source}
    try:
        _publish(folder, contents, parts)
        _remove_older(folder, source)
    except OSError as error:
        reason = error.strerror or error
        raise GgufError(
            f"{cache_dir}: the folder of {gguf.name} cannot be written: {reason}; "
            "set XDG_CACHE_HOME to a folder that can be"
        ) from error
    return folder


def is_prepared(folder: Path) -> bool:
    """Return whether a folder was made by `prepare_folder`, so that it never changes its weights."""
    return (folder / _SOURCE_FILE).is_file()


def default_cache_dir() -> Path:
    """Return the folder for model folders in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "penstock" / "models"


def folder_contents(model: GgufModel) -> dict[str, dict[str, Any]]:
    """Return the JSON files of a model's folder by their name.

    Raises:
        GgufError: The model is not supported.
    """
    config = make_config(model)
    vocabulary = read_vocabulary(model)
    if len(vocabulary.ids) > config["vocab_size"]:
        raise GgufError(f"{model.path}: has {len(vocabulary.ids)} tokens for {config['vocab_size']} embeddings")
    generation = {"eos_token_id": vocabulary.end_ids}
    if "bos_token" in vocabulary.special:
        generation["bos_token_id"] = [vocabulary.ids[vocabulary.special["bos_token"]]]
    return {
        "config.json": {**config, "eos_token_id": vocabulary.end_ids},
        "generation_config.json": generation,
        "tokenizer.json": make_tokenizer(model, vocabulary),
        "tokenizer_config.json": make_tokenizer_config(model, vocabulary),
    }


def _source(parts: Sequence[Path]) -> dict[str, Any]:
    """Return what identifies the content of the files."""
    stats = [part.stat() for part in parts]
    files = [
        {"path": str(part), "size": stat.st_size, "changed_ns": stat.st_mtime_ns}
        for part, stat in zip(parts, stats, strict=True)
    ]
    return {"form": _FORM, "files": files}


def _entry_name(gguf: Path, source: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARS]
    name = re.sub(r"[^\w.-]", "_", model_name(gguf))[:_MAX_NAME_CHARS]
    return f"{name}-{digest}"


def _link_names(num_parts: int) -> list[str]:
    if num_parts == 1:
        return ["model.gguf"]
    return [f"model-{number:05}-of-{num_parts:05}.gguf" for number in range(1, num_parts + 1)]


def _is_complete(folder: Path, source: Mapping[str, Any]) -> bool:
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    return _read_source(folder) == source and all(
        (folder / name).is_file() for name in (*names, *_link_names(len(source["files"])))
    )


def _read_source(folder: Path) -> Any:
    try:
        return json.loads((folder / _SOURCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no folder of ours, or a damaged one, which is made anew
        return None


def _publish(folder: Path, contents: Mapping[str, dict[str, Any]], parts: Sequence[Path]) -> None:
    """Write the folder under another name and rename it. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in contents.items():
            (draft / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        for name, part in zip(_link_names(len(parts)), parts, strict=True):
            (draft / name).symlink_to(part)
        if folder.exists() and not _is_complete(folder, contents[_SOURCE_FILE]):
            shutil.rmtree(folder)
        draft.rename(folder)
    except OSError as error:
        # Another process was first.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not _is_complete(folder, contents[_SOURCE_FILE]):
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_older(folder: Path, source: Mapping[str, Any]) -> None:
    """Remove the folders of earlier contents of the same file."""
    first = source["files"][0]["path"]
    for other in folder.parent.iterdir():
        if other == folder or not other.is_dir():
            continue
        found = _read_source(other)
        files = found.get("files") if isinstance(found, dict) else None
        if isinstance(files, list) and files and files[0].get("path") == first:
            shutil.rmtree(other, ignore_errors=True)
