"""Held-out prompts of the bundled models' tasks, for benches; the generator runs as a process of its own."""

from __future__ import annotations

from typing import Any

from loadtests.harness.processes import Workbench

_TIMEOUT_S = 60.0


async def bundled_prompts(bench: Workbench, *, seed: int, samples: int) -> list[dict[str, Any]]:
    """`task`, `difficulty`, `messages` and `answer` of so many prompts of each task and difficulty. Raises
    ProcessFailed."""
    process = await bench.start(
        "prompts", "engine.training.data.prompts", ["--seed", str(seed), "--samples", str(samples)]
    )

    async def is_over() -> bool:
        return not process.is_running and bool(process.json_lines())

    await process.wait_until(is_over, _TIMEOUT_S)
    return process.json_lines()
