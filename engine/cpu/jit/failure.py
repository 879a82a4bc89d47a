"""The one error of compiled code that cannot be had. Imports no Numba, so it can tell of its absence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MAX_CHARS = 200
"""Characters of a reason: compilers write pages, and the reason is a label of a metric."""


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("_listener", default=None)
_under_way: ContextVar[str] = ContextVar("_under_way", default="")


class CompileError(RuntimeError):
    """Numba cannot be imported, or cannot compile or load a function; the message is one line."""


@contextmanager
def compilation_reported_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Report to a listener what this thread begins to compile inside, and the empty text when it is done.

    A crash of LLVM ends the process without an exception, so only another process can know of it.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def reported_as_compile_error(what: str) -> Iterator[None]:
    """Raise CompileError for whatever Numba, LLVM and their caches raise inside; `what` names the work."""
    with _reported(what), _raised_as_compile_error(what):
        yield


@contextmanager
def _reported(what: str) -> Iterator[None]:
    listener = _listener.get()
    if listener is None:
        yield
        return
    token = _under_way.set(what)
    listener(what)
    try:
        yield
    finally:
        _under_way.reset(token)
        listener(_under_way.get())


@contextmanager
def _raised_as_compile_error(what: str) -> Iterator[None]:
    try:
        yield
    except CompileError:
        raise
    # They raise nearly every kind of exception, and none of them is about a request or a setting.
    except Exception as error:
        lines = str(error).split("\n")
        reason = next((line.strip() for line in lines if line.strip()), "")
        raise CompileError(f"{what}: {type(error).__name__}: {reason}"[:_MAX_CHARS]) from error
