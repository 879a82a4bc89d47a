"""Outcomes of the bundled models on held-out prompts, for the benches that no file of outcomes is given to."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def make_outcomes(path: Path, samples: int, seed: int) -> None:
    """Write the outcomes to a file; takes minutes. Raises SystemExit when that fails."""
    command = (
        "-m",
        "engine.training.evaluation.outcomes",
        "--split",
        "test",
        "--samples",
        str(samples),
        "--seed",
        str(seed),
    )
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--out", str(path))
    if await process.wait() != 0:
        raise SystemExit("the bundled models' outcomes could not be made; see above")
