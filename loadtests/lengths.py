"""Prompt and output lengths of requests: drawn from a recorded trace, or made up and said to be."""

from __future__ import annotations

import csv
import gzip
import random
from dataclasses import dataclass
from pathlib import Path

_TRACE = Path("traces/azure2023_conv.csv.gz")
_MIN_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Pairs of (prompt, output) tokens that fit a context."""

    pairs: list[tuple[int, int]]
    source: str
    """For the card: where they are from."""


def draw_lengths(data: Path | None, count: int, *, max_total_tokens: int, rng: random.Random) -> Lengths:
    """`count` pairs, each scaled by one factor so that 99 of 100 fit into `max_total_tokens`; the others are cut.

    From the Azure conversation trace below the folder `data`; without one, lognormal lengths of a similar spread.
    """
    if data is not None:
        drawn = rng.choices(_read_trace(data / _TRACE), k=count)
        source = "Azure 2023 conversation trace"
    else:
        drawn = [(_lognormal(rng, 6.6, 0.9), _lognormal(rng, 5.0, 0.9)) for _ in range(count)]
        source = "synthetic lognormal (no --data)"
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
