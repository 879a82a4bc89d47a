"""The encoder in both precisions: time of one text, and whether int8 decides as fp32 does.

Times are of lone texts of 8, 16 and 32 tokens through the Embedder, its queue and its thread included. With `--data`
the precisions are compared on real pairs of questions: cosine between the two vectors of a text; whether the nearest
other question is the same one; how well each separates pairs of one meaning from the others (area under the ROC
curve); and whether both accept the same pairs, each at its own threshold that accepts as many wrong pairs as the
other's."""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import tempfile
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.embedding.embedder import Embedder
from gateway.embedding.encoder import Precision, TextEncoder
from gateway.embedding.installed import InstalledEncoder
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile

Matrix = NDArray[np.float32]

_PRECISIONS: Final[tuple[Precision, ...]] = ("fp32", "int8")
_NUM_TOKENS: Final = (8, 16, 32)
_MARKS: Final = 2
"""Tokens that every text has besides its words."""
_TEXT: Final = "how do you reset the last password of an account on my phone or computer"
_QUESTIONS: Final = "cache/qqp_calibration_questions.csv.gz"
_PAIRS: Final = "cache/qqp_calibration_pairs.csv.gz"
_WRONG_SHARE: Final = 0.05
_BATCH: Final = 64
_PATIENCE_S: Final = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--texts", type=int, default=300, help="of each length, one after the other (%(default)s)")
    parser.add_argument("--data", type=Path, help="folder of evaluation data: compare the precisions on its questions")
    parser.add_argument("--pairs", type=int, default=3000, help="of questions to compare on (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    pairs = None if options.data is None else _read_pairs(options.data, options.pairs)
    results: dict[str, Value] = {}
    vectors: dict[Precision, Matrix] = {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in _PRECISIONS:
            loaded = _Loaded(Path(folder), precision)
            embedder = Embedder(loaded.load, count=lambda result: None, on_failure=_raise)
            begun = time.perf_counter()
            embedder.start()
            async with asyncio.timeout(_PATIENCE_S):
                while not embedder.is_ready:
                    await asyncio.sleep(0.01)
            results[f"{precision}_first_start_s"] = time.perf_counter() - begun
            results |= await _times(embedder, precision, options.texts)
            await embedder.aclose()
            if pairs is not None:
                vectors[precision] = _encode(loaded.encoder, pairs.texts)
    if pairs is not None:
        results |= _comparison(vectors["fp32"], vectors["int8"], pairs)
    return Card(bench="encoder", arrivals="closed loop, one text after the other", results=results)


@dataclass(frozen=True)
class _Pairs:
    texts: list[str]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    is_same: NDArray[np.bool_]


class _Loaded:
    """Keeps hold of the encoder that an Embedder loads."""

    def __init__(self, folder: Path, precision: Precision) -> None:
        self._installed = InstalledEncoder(folder, precision)
        self.encoder: TextEncoder

    async def load(self, thread: Executor) -> TextEncoder:
        self.encoder = await self._installed.load(thread)
        return self.encoder


async def _times(embedder: Embedder, precision: Precision, num_texts: int) -> dict[str, Value]:
    results: dict[str, Value] = {}
    known = _TEXT.split()
    for num_tokens in _NUM_TOKENS:
        seconds = []
        for number in range(num_texts):
            words = [known[(number + place * place) % len(known)] for place in range(num_tokens - _MARKS)]
            begun = time.perf_counter()
            await embedder.embed(" ".join(words))
            seconds.append(time.perf_counter() - begun)
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            results[f"{precision}_{num_tokens}_tokens_{name}_ms"] = percentile(seconds, share) * 1e3
    return results


def _comparison(fp32: Matrix, int8: Matrix, pairs: _Pairs) -> dict[str, Value]:
    cosines = (fp32 * int8).sum(axis=1)
    scores = [(rows[pairs.left] * rows[pairs.right]).sum(axis=1) for rows in (fp32, int8)]
    accepted = [score > np.quantile(score[~pairs.is_same], 1 - _WRONG_SHARE) for score in scores]
    return {
        "texts": len(pairs.texts),
        "pairs": len(pairs.left),
        "cosine_mean": float(cosines.mean()),
        "cosine_min": float(cosines.min()),
        "same_neighbour_ratio": float((_neighbours(fp32) == _neighbours(int8)).mean()),
        "fp32_roc_area": _roc_area(scores[0], pairs.is_same),
        "int8_roc_area": _roc_area(scores[1], pairs.is_same),
        "fp32_accepted_right_ratio": float(accepted[0][pairs.is_same].mean()),
        "int8_accepted_right_ratio": float(accepted[1][pairs.is_same].mean()),
        "same_decision_ratio": float((accepted[0] == accepted[1]).mean()),
    }


def _neighbours(rows: Matrix) -> NDArray[np.int64]:
    """The nearest other row of each."""
    found = np.empty(len(rows), np.int64)
    for begin in range(0, len(rows), 1000):
        cosines = rows[begin : begin + 1000] @ rows.T
        places = np.arange(len(cosines))
        cosines[places, begin + places] = -1
        found[begin : begin + 1000] = cosines.argmax(axis=1)
    return found


def _roc_area(scores: Matrix, is_same: NDArray[np.bool_]) -> float:
    """The probability that a pair of one meaning scores above one of two (Mann-Whitney)."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    num_same, num_other = int(is_same.sum()), int((~is_same).sum())
    return float((ranks[is_same].sum() - num_same * (num_same + 1) / 2) / (num_same * num_other))


def _encode(encoder: TextEncoder, texts: list[str]) -> Matrix:
    return np.concatenate([encoder.encode(texts[begin : begin + _BATCH]) for begin in range(0, len(texts), _BATCH)])


def _read_pairs(folder: Path, num_pairs: int) -> _Pairs:
    """Pairs from all over the file. Raises OSError where there is none."""
    for name in (_QUESTIONS, _PAIRS):
        if not (folder / name).is_file():
            raise OSError(f"{folder / name} is missing; leave --data out to measure times only")
    with gzip.open(folder / _QUESTIONS, "rt", newline="") as file:
        texts = {row["qid"]: row["text"] for row in csv.DictReader(file)}
    with gzip.open(folder / _PAIRS, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = rows[:: max(1, len(rows) // num_pairs)][:num_pairs]
    qids = list(dict.fromkeys(row[side] for row in chosen for side in ("qid_a", "qid_b")))
    places = {qid: place for place, qid in enumerate(qids)}
    left, right = (np.array([places[row[side]] for row in chosen]) for side in ("qid_a", "qid_b"))
    return _Pairs([texts[qid] for qid in qids], left, right, np.array([row["label"] == "1" for row in chosen]))


def _raise(error: BaseException) -> None:
    raise error
