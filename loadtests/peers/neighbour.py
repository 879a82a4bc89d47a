"""`python -m loadtests.peers.neighbour`: a process that takes a share of one core, in turns of a few milliseconds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

_TURN_S = 0.005


def main(argv: Sequence[str] | None = None) -> int:
    """Compute and rest in turn until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers.neighbour", description=__doc__)
    parser.add_argument("--share", type=float, default=0.5, help="of the core (default %(default)s)")
    options = parser.parse_args(argv)
    print("{}", flush=True)
    while True:
        # Processor time, so that the neighbour takes its share from others that want the core too.
        end_at = time.thread_time() + _TURN_S
        while time.thread_time() < end_at:
            pass
        time.sleep(_TURN_S * (1.0 / options.share - 1.0))


if __name__ == "__main__":
    sys.exit(main())
