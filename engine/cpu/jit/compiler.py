"""Compilation of functions by Numba (LLVM), with a cache on disk for the next process."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit, types

Compiled = Callable[..., Any]
"""Compiled function; Numba makes one version for each combination of argument types."""

logger = logging.getLogger(__name__)

# Sums may be reordered for speed; infinities and NaNs stay exact.
FAST = frozenset({"contract", "reassoc", "nsz", "arcp"})


class _CodeCache:
    """The compiled functions of this process; their code is stored on disk once the cache is open."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: list[Any] = []

    def add(self, dispatcher: Any) -> None:
        """Keep a function's code, now or as soon as the cache is open."""
        if self._is_open:
            dispatcher.enable_caching()
        else:
            self._waiting.append(dispatcher)

    def open(self, folder: Path) -> None:
        """Keep code in a folder from now on."""
        numba.config.CACHE_DIR = str(folder)
        self._is_open = True
        while self._waiting:
            self._waiting.pop().enable_caching()


CODE_CACHE = _CodeCache()


def keep_compiled_code() -> None:
    """Keep compiled code in the user's own cache folder, if it can be written; for a process to call at its start.

    Numba creates a folder for each module whose code it stores, so a process that only imports modules stores nothing.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        # Numba checks only the file of the outermost function.
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "penstock" / "compiled" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)  # an existing folder may be writable by others, who could add code
    except OSError as error:
        logger.info("compiled code is not cached: %s", error)
        return
    if os.access(folder, os.W_OK):
        CODE_CACHE.open(folder)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that runs without the interpreter's lock."""
    return _compile(function, FAST)


def inner(function: Compiled) -> Compiled:
    """Compile a function for its callers alone, which hold its code; it may refer to names of an outer function."""
    found: Compiled = njit(function, **options(FAST))
    return found


def inlined(function: Compiled) -> Compiled:
    """Compile a function within its only caller, which saves compiling it on its own as well."""
    found: Compiled = njit(function, inline="always", **options(FAST))
    return found


def compiled_exactly(function: Compiled) -> Compiled:
    """Compile a function without reordering its operations."""
    return _compile(function, frozenset({"contract"}))


def compile_for_integers(function: Compiled) -> None:
    """Compile a function whose arguments are integers, or read its code from the cache."""
    dispatcher: Any = function
    dispatcher.compile((types.intp,) * len(inspect.signature(dispatcher.py_func).parameters))


def options(fastmath: frozenset[str]) -> dict[str, Any]:
    """Return Numba's options for code that reorders operations as `fastmath` allows."""
    return {"nogil": True, "fastmath": set(fastmath), "error_model": "numpy", "boundscheck": False}


def _compile(function: Compiled, fastmath: frozenset[str]) -> Compiled:
    found: Compiled = njit(function, **options(fastmath))
    CODE_CACHE.add(found)
    return found
