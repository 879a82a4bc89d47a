"""A gateway whose clock is wrong: `python -m tests.replicas.skewed_gateway SECONDS gateway …`."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":
    offset_s, real = float(sys.argv.pop(1)), time.time
    time.time = lambda: real() + offset_s
    from gateway.cli.main import main

    sys.exit(main())
