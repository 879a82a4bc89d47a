"""EngineFigures: one replica's measured step times and room, from its load feed or from `penstock engine steps`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A step's duration: each term in seconds for one of its units."""

    fixed_s: float
    row_s: float = 0.0
    prefill_token_s: float = 0.0
    kv_token_s: float = 0.0
    """For each position attended to, summed over rows."""
    pair_s: float = 0.0
    """For each prompt token of a chunk and position that the chunk reaches."""
    chunk_s: float = 0.0


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One replica."""

    steps: StepTerms
    max_rows: int
    step_tokens: int
    """Most tokens, prompts and rows together, in one step."""
    kv_tokens: int
    """Tokens whose keys and values fit into its memory."""
    itl_target_s: float = 0.05
    """Longest step that a short prompt's chunk may make while others decode; the engine's own default."""
    prefill_slack_ratio: float = 1.8
    """How many times a plain decode step the chunks of several longer prompts may make it; the engine's own default."""


class FiguresMissing(ValueError):
    """What was given does not say how long a step takes; the message names what is missing and how to get it."""


class _Load(msgspec.Struct):
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    num_blocks_total: int = 0
    block_size: int = 0
    step_time: StepTerms | None = None


def figures_of_load(document: Mapping[str, Any]) -> EngineFigures:
    """From one event of `/engine/load`. Raises FiguresMissing."""
    try:
        load = msgspec.convert(document, _Load)
    except msgspec.ValidationError as error:
        raise FiguresMissing(f"this is no event of /engine/load: {error}") from None
    if load.step_time is None:
        raise FiguresMissing("the engine has not run enough steps to know how long one takes; send it some requests")
    if not _is_known(load.step_time):
        raise FiguresMissing(
            "the engine has not run steps unlike enough to know what rows and prompts add to one; send it requests of "
            "several lengths, several at once"
        )
    if not (load.max_num_seqs and load.max_num_batched_tokens and load.num_blocks_total and load.block_size):
        raise FiguresMissing("the engine is not ready: it does not say its rows, step budget and KV blocks yet")
    return EngineFigures(
        steps=load.step_time,
        max_rows=load.max_num_seqs,
        step_tokens=load.max_num_batched_tokens,
        kv_tokens=load.num_blocks_total * load.block_size,
    )


def terms_of_steps(document: Mapping[str, Any], *, prefill_token_s: float) -> StepTerms:
    """Fitted to the shapes of `penstock engine steps --json`: fixed, by row and by position. Raises FiguresMissing.

    That run measures decode alone, so what a prompt's token takes is given beside it.
    """
    shapes = [_shape(item) for item in document["shapes"]]
    if len({rows for rows, _, _ in shapes}) < 2:
        raise FiguresMissing("two numbers of rows are needed: penstock engine steps --shape 1x512 --shape 16x512")
    fixed_s, row_s, kv_token_s = _fitted(shapes)
    return StepTerms(fixed_s=fixed_s, row_s=row_s, kv_token_s=kv_token_s, prefill_token_s=prefill_token_s)


def _is_known(terms: StepTerms) -> bool:
    """Whether no term is impossible, and not all of a step's time is fixed."""
    values = msgspec.structs.astuple(terms)
    grows = terms.row_s > 0 or terms.prefill_token_s > 0 or terms.kv_token_s > 0
    return all(0 <= value < math.inf for value in values) and terms.fixed_s > 0 and grows


def _shape(item: Mapping[str, Any]) -> tuple[float, float, float]:
    """Rows, positions over all rows, seconds."""
    rows = float(item["rows"])
    return rows, rows * float(item["context"]), float(item["overlapped_ms"]) / 1e3


def _fitted(shapes: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Least squares with no term below 0; the positions' term only where contexts differ enough to tell it apart."""
    import numpy as np

    features = np.array([[1.0, rows, context] for rows, context, _ in shapes])
    seconds = np.array([took for _, _, took in shapes])
    scale = features.max(axis=0)
    kept = [0, 1, 2] if np.linalg.matrix_rank(features / scale, tol=1e-3) == 3 else [0, 1]
    while True:
        solution, *_ = np.linalg.lstsq(features[:, kept] / scale[kept], seconds, rcond=None)
        worst = int(np.argmin(solution))
        if solution[worst] >= 0 or len(kept) == 1:
            break
        del kept[worst]
    terms = [0.0, 0.0, 0.0]
    for column, value in zip(kept, solution, strict=True):
        terms[column] = max(0.0, float(value / scale[column]))
    return terms[0], terms[1], terms[2]
