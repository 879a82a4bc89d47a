"""What every test relies on."""

from __future__ import annotations

import os

# Triton decides when a kernel is defined whether it runs compiled or interpreted, so before any import of one.
if not os.path.exists("/dev/nvidia0"):
    os.environ.setdefault("TRITON_INTERPRET", "1")
