"""`python -m gateway.cli.machine_process SPEC`: one process of a gateway with workers; its supervisor starts it."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import msgspec

from gateway.cli import commands
from gateway.cli.main import guarded
from gateway.machine.process import MachineProcessSpec


def main() -> int:
    """Run the process until a signal; return its exit code."""
    from gateway.app.serving import run_member

    spec = msgspec.json.decode(sys.argv[1], type=MachineProcessSpec)
    options = argparse.Namespace(config=None)
    return guarded(lambda: commands.gateway(options, partial(run_member, spec)))


if __name__ == "__main__":
    sys.exit(main())
