"""`python -m deploy.supply locks|wheel|sbom|newer`: what the targets of the Makefile by these names run."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.supply import locks, sbom, wheel

_DIST: Final = locks.ROOT / "dist"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.supply", description=__doc__)
    parser.add_argument("command", choices=["locks", "wheel", "sbom", "newer"])
    parser.add_argument("--output", type=Path, default=_DIST, help="folder for wheel and SBOMs (default dist)")
    options = parser.parse_args(arguments)
    match options.command:
        case "locks":
            locks.write()
        case "wheel":
            built = wheel.build_wheel(options.output)
            print(f"{hashlib.sha256(built.read_bytes()).hexdigest()}  {built}")
        case "sbom":
            print(*sbom.write_all(options.output / "sbom"), sep="\n")
        case "newer":
            print(*locks.newer() or ["no upper bound leaves out a newer version"], sep="\n")


if __name__ == "__main__":
    main()
