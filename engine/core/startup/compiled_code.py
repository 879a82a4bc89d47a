"""Compiled code of a core: made ready before it is used, and done without where it cannot be had."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from engine.config import CoreConfig
from engine.cpu.jit.failure import CompileError, reported_as_compile_error

logger = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")


def load_with_compiled_code(
    config: CoreConfig, load: Callable[[CoreConfig, str], Loaded], crash: str = ""
) -> tuple[CoreConfig, Loaded]:
    """Load a core's model with compiled code, or without any where that fails, which one line of the log tells.

    Args:
        config: Settings of the core.
        load: Loads by settings and a reason why nothing is compiled; it is empty unless compiled code failed.
        crash: How the compiler ended an earlier core; nothing is compiled then. Empty: it ended none.

    Returns:
        The settings that hold from now on, and what `load` returned.
    """
    failure = crash
    if not crash:
        try:
            if config.drafting.speculation != "off":
                _prepare_proposers()
            return config, load(config, "")
        except CompileError as error:
            failure = str(error)
    # Behind the handler, which keeps the memory of what was loaded.
    logger.error(
        "compiled code failed (%s): steps run in torch, which is slower, and no tokens are drafted. "
        "`python -m engine.cpu` shows the whole error; `pip install --force-reinstall numba llvmlite` mends a damaged "
        "or mismatched installation. --no-compiled-steps --speculation off starts this way without trying",
        failure,
    )
    config = config.changed(compiled_steps=False, speculation="off")
    return config, load(config, failure)


def _prepare_proposers() -> None:
    """Compile what proposers of draft tokens need. Raises CompileError."""
    with reported_as_compile_error("numba"):
        # Numba takes its time to import, and some cores need none of it.
        from engine.cpu.jit.compiler import keep_compiled_code
        from engine.cpu.multi_step import draft_budget, ngram

        keep_compiled_code()
        ngram.prepare()
        draft_budget.prepare()
