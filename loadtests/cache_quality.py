"""Similar answers: how many are given, how many of them are wrong, and whether a changed meaning is noticed.

The decision as the gateway makes it (its encoder, index and judge), without HTTP: questions one after another into an
empty cache, inserted on a miss, error = wrong answers over all requests. `--data` names a folder with 40,000 questions
of known meaning; without it a few hundred made ones are asked, which shows that it works and not how good it is.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np

from gateway.cache.decision import Judge
from gateway.cache.fitting.questions import Questions, read_questions
from gateway.cache.fitting.stream import best_threshold_hits, play
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.graph import build_graph
from gateway.embedding.make import encoder_id, graph_file
from gateway.embedding.model_files import installed_model
from gateway.embedding.onnx_encoder import OnnxEncoder
from loadtests.card import Card, Value
from loadtests.changed_meaning import KINDS, Kind, Pair, pairs
from loadtests.made_questions import made_questions

MIN_COSINE = 0.8
_MOST_TRIED = 20
_AT_ONCE = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seed", type=int, default=1, help="of what is asked (default %(default)s)")
    add_quality_arguments(parser)


def add_quality_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that are about similar answers alone."""
    parser.add_argument("--data", type=Path, help="folder with cache/qqp_calibration_*.csv.gz; default: made questions")
    parser.add_argument("--questions", type=int, default=50_000, help="at most so many of them (default %(default)s)")
    parser.add_argument(
        "--max-error-ratio", type=float, action="append", help="bound; may be given several times (default 0.01)"
    )
    parser.add_argument("--pairs", type=int, default=100, help="of each changed meaning (default %(default)s)")
    parser.add_argument("--encoder-folder", type=Path, help="where the encoder's graph is kept (default: made anew)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    return await asyncio.to_thread(measure, options)


def measure(options: argparse.Namespace) -> Card:
    """The same, on this thread. Raises FileNotFoundError where the data are missing."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = _encoder(options.encoder_folder or Path(folder))
    questions = made_questions(options.seed) if options.data is None else read_questions(options.data)
    questions = _first(questions, options.questions)
    vectors = np.concatenate(
        [encoder.encode(questions.texts[at : at + _AT_ONCE]) for at in range(0, len(questions), _AT_ONCE)]
    )
    judge = Judge.shipped()
    results: dict[str, Value] = {"questions": len(questions)}
    notes = []
    for number, bound in enumerate(options.max_error_ratio or [0.01]):
        played = play(questions, vectors, judge, judge.floor(bound), encoder.id)
        low, high = played.error_limits(options.seed)
        plain = best_threshold_hits(questions, vectors, played.error_ratio)
        suffix = "" if number == 0 else f"_at_{bound:g}"
        results |= {
            f"max_error_ratio{suffix}": bound,
            f"hit_ratio{suffix}": played.hit_ratio,
            f"error_ratio{suffix}": played.error_ratio,
            f"error_high{suffix}": high,
            f"threshold_hit_ratio{suffix}": plain,
        }
        notes.append(
            f"bound {bound:g}: {played.hits.sum():.0f} hits, {played.wrong.sum():.0f} wrong, "
            f"error {low:.4f} to {high:.4f}"
        )
    served, shown = changed_meaning(encoder, judge, judge.floor((options.max_error_ratio or [0.01])[0]), options)
    return Card(
        bench="cache_quality",
        arrivals=f"{len(questions)} questions in sequence ({'made' if options.data is None else 'QQP calibration'})",
        results=results | served,
        notes=(*notes, *shown),
    )


def changed_meaning(
    encoder: TextEncoder, judge: Judge, floor: float, options: argparse.Namespace
) -> tuple[dict[str, Value], list[str]]:
    """Shares of the pairs of changed meaning that would be served: with words of our lists, and with others."""
    shares: dict[str, Value] = {}
    notes = []
    for is_listed in (True, False):
        served, total = 0, 0
        for kind in KINDS:
            close = close_pairs(encoder, kind, is_listed, options.seed, options.pairs)
            given = [pair for pair, cosine in close if _is_given(judge, pair, cosine, floor)]
            served, total = served + len(given), total + len(close)
            told = "words of our lists" if is_listed else "other words"
            notes.append(f"changed {kind:<9} ({told}): {len(given)} of {len(close)} served")
        shares["changed_meaning_served" if is_listed else "changed_meaning_served_held_out"] = served / max(1, total)
    return shares, notes


def close_pairs(encoder: TextEncoder, kind: Kind, is_listed: bool, seed: int, count: int) -> list[tuple[Pair, float]]:
    """The first so many that a threshold of 0.8 would serve, with their cosines; fewer when there are not as many."""
    tried = dict.fromkeys(islice(pairs(kind, is_listed=is_listed, seed=seed), _MOST_TRIED * count))
    found: list[tuple[Pair, float]] = []
    candidates = list(tried)
    for at in range(0, len(candidates), count):
        some = candidates[at : at + count]
        kept, asked = encoder.encode([pair.kept for pair in some]), encoder.encode([pair.asked for pair in some])
        cosines = (kept * asked).sum(axis=1)
        found += [(pair, float(cosine)) for pair, cosine in zip(some, cosines, strict=True) if cosine >= MIN_COSINE]
        if len(found) >= count:
            break
    return found[:count]


def _is_given(judge: Judge, pair: Pair, cosine: float, floor: float) -> bool:
    return judge.chance_right(pair.asked, pair.kept, similarity=cosine, runner_up=None, track=None) >= floor


def _encoder(folder: Path) -> OnnxEncoder:
    files = installed_model()
    graph = graph_file(folder, files, "int8").make(lambda: build_graph(files, "int8"))
    return OnnxEncoder(graph, files, encoder_id(files, "int8"))


def _first(questions: Questions, count: int) -> Questions:
    return Questions(
        texts=questions.texts[:count], meanings=questions.meanings[:count], components=questions.components[:count]
    )
