"""Compilation of functions by Numba (LLVM), with a cache on disk for the next process."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from engine.cpu.jit.failure import reported_as_compile_error

Compiled = Callable[..., Any]
"""Compiled function; Numba makes one version for each combination of argument types."""

logger = logging.getLogger(__name__)

# Sums may be reordered for speed; infinities and NaNs stay exact.
FAST = frozenset({"contract", "reassoc", "nsz", "arcp"})


class DamagedCodeError(ValueError):
    """Code on disk that is not what was stored."""


class _SealedCode(CompileResultCacheImpl):  # type: ignore[misc]
    """Compiled code behind its digest: Numba would run damaged code, or end the process. It is in our folder only."""

    _locator_classes = (UserProvidedCacheLocator,)

    def reduce(self, data: Any) -> tuple[bytes, bytes]:
        content: bytes = dumps(super().reduce(data))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, reduced_data: tuple[bytes, bytes]) -> Any:
        digest, content = reduced_data
        if hashlib.sha256(content).digest() != digest:
            raise DamagedCodeError("its digest is another one")
        return super().rebuild(target_context, pickle.loads(content))


class _FunctionCode(FunctionCache):  # type: ignore[misc]
    """Code of one function on disk. What cannot be read is compiled anew, and a start ends for no file."""

    _impl_class = _SealedCode

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
            if found is not None and tuple(found.signature.args) != tuple(getattr(sig, "args", sig)):
                raise DamagedCodeError("it is of another signature")
            return found
        # A damaged pickle raises nearly every kind of exception.
        except Exception as error:
            CODE_CACHE.tell("cannot be read and is compiled anew", error)
            self._store(self.flush)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        self._store(lambda: super(_FunctionCode, self).save_overload(sig, data))

    def _store(self, write: Callable[[], None]) -> None:
        try:
            write()
        # The code is there; a damaged index, which is read before it is written, raises nearly every kind.
        except Exception as error:
            CODE_CACHE.tell(_NOT_STORED, error)


_NOT_STORED = (
    "cannot be stored, so that each start compiles anew and takes longer; "
    "free space there, or set XDG_CACHE_HOME to a folder that can be written"
)


class _CodeCache:
    """The compiled functions of this process; their code is stored on disk once the cache is open."""

    def __init__(self) -> None:
        self.is_open = False
        """True once code is stored on disk."""
        self._waiting: list[tuple[Any, Compiled]] = []
        self._reported: set[str] = set()

    def add(self, dispatcher: Any, function: Compiled) -> None:
        """Keep the code of a function that Numba's dispatcher compiles, now or as soon as the cache is open."""
        if not self.is_open:
            self._waiting.append((dispatcher, function))
            return
        try:
            dispatcher._cache = _FunctionCode(function)
        except (OSError, RuntimeError) as error:  # no folder can be written
            self.tell(_NOT_STORED, error)

    def open(self, folder: Path) -> None:
        """Keep code in a folder from now on."""
        numba.config.CACHE_DIR = str(folder)
        self.is_open = True
        while self._waiting:
            self.add(*self._waiting.pop())

    def tell(self, what: str, error: Exception | str) -> None:
        """Log once what does not work, however many functions it is about."""
        if what not in self._reported:
            self._reported.add(what)
            reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            logger.warning("compiled code in %s %s (%s)", numba.config.CACHE_DIR or _cache_base(), what, reason)


CODE_CACHE = _CodeCache()


def keep_compiled_code() -> None:
    """Keep compiled code in the user's own cache folder, if it can be written; to be called before code is compiled.

    Numba creates a folder for each module whose code it stores, so a process that only imports modules stores nothing.
    """
    if CODE_CACHE.is_open:
        return
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        # Numba checks only the file of the outermost function.
        digest.update(source.read_bytes())
    folder = _cache_base() / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)  # an existing folder may be writable by others, who could add code
    except OSError as error:
        CODE_CACHE.tell(_NOT_STORED, error)
        return
    if os.access(folder, os.W_OK):
        CODE_CACHE.open(folder)
    else:
        CODE_CACHE.tell(_NOT_STORED, "no permission to write")


def _cache_base() -> Path:
    """Return the folder of all compiled code in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "penstock" / "compiled"


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
    """Compile a function whose arguments are integers, or read its code from the cache. Raises CompileError."""
    dispatcher: Any = function
    signature = (types.intp,) * len(inspect.signature(dispatcher.py_func).parameters)
    with reported_as_compile_error(dispatcher.py_func.__name__):
        dispatcher.compile(signature)


def options(fastmath: frozenset[str]) -> dict[str, Any]:
    """Return Numba's options for code that reorders operations as `fastmath` allows."""
    return {"nogil": True, "fastmath": set(fastmath), "error_model": "numpy", "boundscheck": False}


def target() -> str:
    """Return what code is compiled for: triple, processor and features. The order of sums may differ with each."""
    return " ".join(cpu_target.target_context.codegen().magic_tuple())


def _compile(function: Compiled, fastmath: frozenset[str]) -> Compiled:
    found: Compiled = njit(function, **options(fastmath))
    CODE_CACHE.add(found, function)
    return found
