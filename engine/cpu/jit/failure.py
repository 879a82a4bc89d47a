"""The one error of compiled code that cannot be had. Imports no Numba, so it can tell of its absence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_MAX_CHARS = 200
"""Characters of a reason: compilers write pages, and the reason is a label of a metric."""


class CompileError(RuntimeError):
    """Numba cannot be imported, or cannot compile or load a function; the message is one line."""


@contextmanager
def reported_as_compile_error(what: str) -> Iterator[None]:
    """Raise CompileError for whatever Numba, LLVM and their caches raise inside; `what` names the work."""
    try:
        yield
    except CompileError:
        raise
    # They raise nearly every kind of exception, and none of them is about a request or a setting.
    except Exception as error:
        lines = str(error).split("\n")
        reason = next((line.strip() for line in lines if line.strip()), "")
        raise CompileError(f"{what}: {type(error).__name__}: {reason}"[:_MAX_CHARS]) from error
