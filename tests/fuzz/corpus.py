"""Stored inputs of the fuzz targets: one folder each, a few small files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CORPORA: Final = Path(__file__).parent / "corpora"
TARGET_NAMES: Final = tuple(sorted(path.name for path in CORPORA.iterdir()))


def corpus_of(name: str) -> dict[str, bytes]:
    """The stored inputs of a target, by file name."""
    return {path.name: path.read_bytes() for path in sorted((CORPORA / name).iterdir())}
