"""Start an engine as a child that does not outlive its parent: `python -m deploy.ray.engine_child PARENT FLAG…`.

The kernel sends SIGTERM when the parent ends, however it ends, and the engine then drains and stops its core.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Become the engine, unless the parent is gone already."""
    parent, *flags = arguments
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != int(parent):
        sys.exit(0)
    os.execv(sys.executable, [sys.executable, "-m", "engine", *flags])


if __name__ == "__main__":
    main(sys.argv[1:])
