"""How functions are compiled: by Numba, which brings LLVM along, and kept on disk for the next process."""

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
"""What a decorated function becomes; Numba makes one version for each kind of arguments it meets."""

logger = logging.getLogger(__name__)

# Sums may be made in any order a loop is fast in; infinities and NaNs stay what they are.
_FAST = frozenset({"contract", "reassoc", "nsz", "arcp"})


def _cache_dir() -> Path | None:
    """Where code compiled from these very sources is kept, this user's own; None: it cannot be kept."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        # Numba looks at the file of the outermost function alone.
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = Path(base) / "penstock" / "compiled" / digest.hexdigest()[:16]
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        found.chmod(0o700)  # one that was there may be open to others, who could put code into it
    except OSError as error:
        logger.info("compiled code is not kept: %s", error)
        return None
    return found if os.access(found, os.W_OK) else None


_CACHE_DIR = _cache_dir()
if _CACHE_DIR is not None:
    numba.config.CACHE_DIR = str(_CACHE_DIR)


def compiled(function: Compiled) -> Compiled:
    """Compiled without the interpreter's lock."""
    return _compile(function, _FAST)


def compiled_exactly(function: Compiled) -> Compiled:
    """The same with every operation in the order it is written in."""
    return _compile(function, frozenset({"contract"}))


def _compile(function: Compiled, fastmath: frozenset[str]) -> Compiled:
    is_kept = _CACHE_DIR is not None
    found: Compiled = njit(
        function, nogil=True, cache=is_kept, fastmath=set(fastmath), error_model="numpy", boundscheck=False
    )
    return found
