"""Compilation of functions by Numba (LLVM), with a cache on disk for the next process."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit

Compiled = Callable[..., Any]
"""Compiled function; Numba makes one version for each combination of argument types."""

logger = logging.getLogger(__name__)

# Sums may be reordered for speed; infinities and NaNs stay exact.
_FAST = frozenset({"contract", "reassoc", "nsz", "arcp"})


def _cache_dir() -> Path | None:
    """Return the user's own cache folder for code compiled from these sources; None if it cannot be written."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        # Numba checks only the file of the outermost function.
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = Path(base) / "penstock" / "compiled" / digest.hexdigest()[:16]
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        found.chmod(0o700)  # an existing folder may be writable by others, who could add code
    except OSError as error:
        logger.info("compiled code is not cached: %s", error)
        return None
    return found if os.access(found, os.W_OK) else None


_CACHE_DIR = _cache_dir()
if _CACHE_DIR is not None:
    numba.config.CACHE_DIR = str(_CACHE_DIR)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that runs without the interpreter's lock."""
    return _compile(function, _FAST)


def compiled_exactly(function: Compiled) -> Compiled:
    """Compile a function without reordering its operations."""
    return _compile(function, frozenset({"contract"}))


def _compile(function: Compiled, fastmath: frozenset[str]) -> Compiled:
    is_retained = _CACHE_DIR is not None
    found: Compiled = njit(
        function, nogil=True, cache=is_retained, fastmath=set(fastmath), error_model="numpy", boundscheck=False
    )
    return found
