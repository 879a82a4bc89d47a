"""What the parts of the engine bench share: their setting, their result, and prompts that share nothing at random."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.harness.card import Value

Results = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What every part is given."""

    model: Path
    """Absolute folder of the checkpoint."""
    threads: int
    """Of torch, on every side of a comparison."""
    seed: int
    data: Path | None
    """Folder with `traces/azure2023_conv.csv.gz`; None: lengths from a stated fit."""
    seconds: float
    """About how long to measure; starting processes comes on top."""
    quantization: str = "none"
    """Of the engines' weights, where a part does not compare several."""

    def flags(self, *more: str) -> tuple[str, ...]:
        """Arguments of an engine; nothing may be refused for its wait, on a busy machine either."""
        waits = ("--max-queue-wait-s", "3600", "--max-batch-wait-s", "3600")
        common = ("--num-threads", str(self.threads), "--quantization", self.quantization, "--log-level", "warning")
        return (*common, *waits, *more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a part found."""

    results: Results
    notes: list[str] = field(default_factory=list)
    """For people: what was compared, and the single measurements."""


Part = Callable[[Setting], Awaitable[Finding]]


class Prompts:
    """Random token ids; no two prompts share a block."""

    def __init__(self, model_dir: Path, seed: int) -> None:
        config = json.loads((model_dir / "config.json").read_text())
        self._vocab = int(config["vocab_size"]) * 9 // 10  # special tokens lie at the end
        self.max_model_len = int(config["max_position_embeddings"])
        self.rng = random.Random(seed)

    def of(self, num_tokens: int) -> list[int]:
        """One prompt."""
        return [self.rng.randrange(self._vocab) for _ in range(num_tokens)]

    def batch(self, count: int, num_tokens: int) -> list[list[int]]:
        """`count` prompts of equal length."""
        return [self.of(num_tokens) for _ in range(count)]
