"""EngineFigures: one replica's measured step times and room, from its load feed or from `penstock engine steps`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a step's duration, each in seconds per unit."""

    fixed_s: float
    row_s: float = 0.0
    prefill_token_s: float = 0.0
    kv_token_s: float = 0.0
    """Seconds per position attended to, summed over rows."""
    pair_s: float = 0.0
    """Seconds per pair of a chunk's prompt token and a position that the chunk attends to."""
    chunk_s: float = 0.0


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Step times and limits of one replica."""

    steps: StepTerms
    max_num_seqs: int
    step_tokens: int
    """Largest number of tokens in one step, prompts and rows together."""
    kv_tokens: int
    """Number of tokens whose keys and values fit into the KV memory."""
    itl_target_s: float = 0.05
    """Longest step, in seconds, that a short prompt's chunk may cause while others decode; the engine's default."""
    prefill_slack_ratio: float = 1.8
    """Bound on a step with chunks of several longer prompts, as a multiple of a plain decode step.

    The default is the engine's own.
    """
    device: str = ""
    """Device that was measured, such as `cpu` or `cuda:0`; empty where it was not reported."""
    num_threads: int = 0
    """Threads that computed, on a CPU; 0 where they were not reported."""


class FiguresMissing(ValueError):
    """Error for input that does not determine the duration of a step; the message names the gap and the remedy."""


class _Load(msgspec.Struct):
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    num_blocks_total: int = 0
    block_size: int = 0
    step_time: StepTerms | None = None
    device: str = ""
    num_threads: int = 0


def figures_of_load(document: Mapping[str, Any]) -> EngineFigures:
    """Return the figures in one event of `/engine/load`.

    Raises:
        FiguresMissing: The event is malformed, or the engine has not measured enough steps yet.
    """
    try:
        load = msgspec.convert(document, _Load)
    except msgspec.ValidationError as error:
        raise FiguresMissing(f"this is no event of /engine/load: {error}") from None
    if load.step_time is None:
        raise FiguresMissing("the engine has not run enough steps to measure one; send it some requests")
    if not _is_known(load.step_time):
        raise FiguresMissing(
            "the engine has not run steps unlike enough to measure what sequences and prompts add; send it "
            "requests of several lengths, several at once"
        )
    if not (load.max_num_seqs and load.max_num_batched_tokens and load.num_blocks_total and load.block_size):
        raise FiguresMissing("the engine is not ready: it reports no sequences, batched tokens and KV blocks yet")
    return EngineFigures(
        steps=load.step_time,
        max_num_seqs=load.max_num_seqs,
        step_tokens=load.max_num_batched_tokens,
        kv_tokens=load.num_blocks_total * load.block_size,
        device=load.device,
        num_threads=load.num_threads,
    )


def terms_of_steps(document: Mapping[str, Any], *, prefill_token_s: float) -> StepTerms:
    """Fit the fixed, per-row and per-position terms to the shapes of `penstock engine steps --json`.

    That run measures decode alone, so the caller supplies the seconds per prompt token.

    Raises:
        FiguresMissing: The shapes have fewer than two different numbers of rows.
    """
    shapes = [_shape(item) for item in document["shapes"]]
    if len({num_seqs for num_seqs, _, _ in shapes}) < 2:
        raise FiguresMissing("two numbers of sequences are needed: penstock engine steps --shape 1x512 --shape 16x512")
    fixed_s, row_s, kv_token_s = _fitted(shapes)
    return StepTerms(fixed_s=fixed_s, row_s=row_s, kv_token_s=kv_token_s, prefill_token_s=prefill_token_s)


def _is_known(terms: StepTerms) -> bool:
    """Return whether every term is possible and some part of a step's time grows with its load."""
    values = msgspec.structs.astuple(terms)
    grows = terms.row_s > 0 or terms.prefill_token_s > 0 or terms.kv_token_s > 0
    return all(0 <= value < math.inf for value in values) and terms.fixed_s > 0 and grows


def _shape(item: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the rows, the positions over all rows, and the seconds of one shape."""
    num_seqs = float(item["num_seqs"])
    return num_seqs, num_seqs * float(item["context"]), float(item["overlapped_ms"]) / 1e3


def _fitted(shapes: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Fit the terms by least squares, each at least 0.

    The per-position term is fitted only where contexts differ enough to separate it.
    """
    import numpy as np

    features = np.array([[1.0, num_seqs, context] for num_seqs, context, _ in shapes])
    seconds = np.array([took for _, _, took in shapes])
    scale = features.max(axis=0)
    columns = [0, 1, 2] if np.linalg.matrix_rank(features / scale, tol=1e-3) == 3 else [0, 1]
    while True:
        solution, *_ = np.linalg.lstsq(features[:, columns] / scale[columns], seconds, rcond=None)
        worst = int(np.argmin(solution))
        if solution[worst] >= 0 or len(columns) == 1:
            break
        del columns[worst]
    terms = [0.0, 0.0, 0.0]
    for column, value in zip(columns, solution, strict=True):
        terms[column] = max(0.0, float(value / scale[column]))
    return terms[0], terms[1], terms[2]
