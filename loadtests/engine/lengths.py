"""Prompt and output lengths of requests: drawn from a recorded trace, or from a stated fit to it."""

from __future__ import annotations

import csv
import gzip
import random
from dataclasses import dataclass
from pathlib import Path

_TRACE = Path("traces/azure2023_conv.csv.gz")
_MIN_TOKENS = 4
_PROMPT_FIT = (6.63, 0.99)
_OUTPUT_FIT = (5.02, 0.86)
"""Mean and deviation of the logarithms of the trace's lengths (Azure 2023 conversations, CC BY 4.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Pairs of (prompt, output) tokens that fit a context."""

    pairs: list[tuple[int, int]]
    source: str
    """For the card: where they are from."""


def draw_lengths(data: Path | None, count: int, *, max_total_tokens: int, rng: random.Random) -> Lengths:
    """`count` pairs, each scaled by one factor so that 99 of 100 fit into `max_total_tokens`; the others are cut.

    From the Azure conversation trace below the folder `data`; without one, lognormal lengths fitted to that trace.
    Raises OSError when the trace is not there.
    """
    if data is not None:
        drawn = rng.choices(_read_trace(data / _TRACE), k=count)
        source = "Azure 2023 conversation trace"
    else:
        drawn = [(_lognormal(rng, *_PROMPT_FIT), _lognormal(rng, *_OUTPUT_FIT)) for _ in range(count)]
        source = f"lognormal fit to the Azure 2023 conversation trace: prompts {_PROMPT_FIT}, outputs {_OUTPUT_FIT}"
    totals = sorted(sum(pair) for pair in drawn)
    scale = min(1.0, max_total_tokens / totals[int(0.99 * (count - 1))])
    pairs = [_fitted(pair, scale, max_total_tokens) for pair in drawn]
    return Lengths(pairs=pairs, source=f"{source}, lengths x {scale:.3f}")


def _lognormal(rng: random.Random, mu: float, sigma: float) -> int:
    return max(1, round(rng.lognormvariate(mu, sigma)))


def _fitted(pair: tuple[int, int], scale: float, max_total_tokens: int) -> tuple[int, int]:
    num_prompt, num_output = (max(_MIN_TOKENS, round(scale * length)) for length in pair)
    num_output = min(num_output, max_total_tokens - _MIN_TOKENS)
    return min(num_prompt, max_total_tokens - num_output), num_output


def _read_trace(path: Path) -> list[tuple[int, int]]:
    with gzip.open(path, "rt", newline="") as file:
        return [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
