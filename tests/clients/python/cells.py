"""Cells of one client's script: functions that fail when the client cannot do what they are named for.

Scripts run in the client's own environment, so this module needs the standard library only.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

URL = os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080")
V1 = URL + "/v1"
KEY = os.environ.get("PENSTOCK_KEY", "unused")
MODEL = os.environ.get("PENSTOCK_MODEL", "auto")
"""Model served by the bundled engines."""
AGENT = os.environ.get("PENSTOCK_AGENT", "agent")
"""Model that calls tools when the user's text mentions one."""
ENCODER = os.environ.get("PENSTOCK_ENCODER", "")
"""Model of the embeddings endpoint."""
PROMPT = "What is 3 + 4?"
TOOL_PROMPT = "Use the tool to look up the weather in Paris."

_CELLS: list[tuple[str, str, Callable[[], Any]]] = []


def cell(surface: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function as a cell of the matrix, on one API surface."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        _CELLS.append((surface, function.__name__, function))
        return function

    return register


def refused(kind: type[BaseException], call: Callable[[], object]) -> Any:
    """Return the error of this kind with which a call ends."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("the request was served")


def run() -> None:
    """Run every cell, print one JSON line for each, and exit with their failures' number."""
    wanted = set(sys.argv[1:])
    num_failed = 0
    for surface, name, function in _CELLS:
        if wanted and name not in wanted:
            continue
        began_at = time.monotonic()
        error = None
        try:
            result = function()
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except BaseException as failure:  # a client may raise anything
            error = "".join(traceback.format_exception(failure))[-3000:]
            num_failed += 1
        took = round(time.monotonic() - began_at, 2)
        print("CELL " + json.dumps({"surface": surface, "cell": name, "error": error, "seconds": took}), flush=True)
    sys.exit(min(num_failed, 99))
