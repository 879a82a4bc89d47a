"""What every test relies on."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Triton decides when a kernel is defined whether it runs compiled or interpreted, so before any import of one.
if not os.path.exists("/dev/nvidia0"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Two torch threads on two busy cores spin for each other; one is faster here, and the same everywhere.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# One process serves in tests that start a gateway, whatever the machine's cores; those of workers set their number.
os.environ.setdefault("PENSTOCK_PROCESS_WORKERS", "1")

# Tests hold both ends of many connections: more than the 1,024 files that some machines allow at first.
_, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

# A busy machine is no finding. A change meets the same examples each time; the nightly check draws new ones.
settings.register_profile("penstock", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, derandomize=False)
settings.load_profile("penstock")


@pytest.fixture(autouse=True)
def _subnormal_numbers() -> Iterator[None]:
    """An engine started inside a test rounds subnormals to zero for the whole process; the next test must not."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
