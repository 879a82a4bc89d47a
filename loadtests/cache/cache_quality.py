"""Similar answers: how many are given, how many of them are wrong, and whether a changed meaning is noticed.

The decision as the gateway makes it (its encoder, index and match model), without HTTP: questions one after another
into an empty cache, inserted on a miss, error = wrong answers over all requests. `--data` names a folder with 40,000
questions of known meaning; without it a few hundred made ones are sent, which shows that it works and not how good it
is."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.cache.audit.match_models import MatchModels
from gateway.cache.fitting.questions import Questions, read_intents, read_questions
from gateway.cache.fitting.stream import best_threshold_hits
from gateway.cache.semantic.canonical_question import canonical_question
from gateway.cache.similarity.decision import MatchModel
from gateway.cache.similarity.vetoes import VETOES
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.graph import build_graph
from gateway.embedding.make import encoder_id, graph_file
from gateway.embedding.model_files import installed_model
from gateway.embedding.onnx_encoder import OnnxEncoder
from loadtests.cache.audited_stream import Audits, Stream, describe, play_audited, streams_of
from loadtests.cache.changed_meaning import KINDS, Kind, Pair, pairs
from loadtests.cache.crafted_suffix import FAMILIES, served_ratio
from loadtests.cache.made_questions import made_questions
from loadtests.cache.other_context import play_alone, read_conversations
from loadtests.cache.question_pairs.paraphrases import paraphrases, typos
from loadtests.harness.card import Card, Value

Vectors = NDArray[np.float32]
Measured = tuple[dict[str, Value], list[str]]
"""Results, and lines for people."""

MIN_COSINE = 0.8
_MOST_TRIED = 20
_AT_ONCE = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seed", type=int, default=1, help="of the requests (default %(default)s)")
    add_quality_arguments(parser)


def add_quality_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that are about similar answers alone."""
    parser.add_argument("--data", type=Path, help="folder with cache/qqp_calibration_*.csv.gz; default: made questions")
    parser.add_argument("--questions", type=int, default=50_000, help="at most so many of them (default %(default)s)")
    parser.add_argument(
        "--max-error-ratio", type=float, action="append", help="bound; may be given several times (default 0.01)"
    )
    parser.add_argument(
        "--audit-ratio",
        type=float,
        action="append",
        help="also play streams with repeats and with a change of domain with so many audited; may be given several "
        "times (needs --data)",
    )
    parser.add_argument("--audit-noise", type=float, default=0.0, help="share of false verdicts (default %(default)s)")
    parser.add_argument(
        "--vectors", type=Path, help="folder with questions.npy and intents.npy, saved there when they are made"
    )
    parser.add_argument("--pairs", type=int, default=100, help="of each changed meaning (default %(default)s)")
    parser.add_argument("--crafted", type=int, default=20, help="attempts of each family (default %(default)s)")
    parser.add_argument(
        "--without", action="append", choices=VETOES, default=[], help="leave out a veto; may be given several times"
    )
    parser.add_argument("--encoder-folder", type=Path, help="where the encoder's graph is cached (default: made anew)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    return await asyncio.to_thread(measure, options)


def measure(options: argparse.Namespace) -> Card:
    """The same, on this thread. Raises FileNotFoundError where the data are missing."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = _encoder(options.encoder_folder or Path(folder))
    questions = made_questions(options.seed) if options.data is None else read_questions(options.data)
    vectors = _vectors(encoder, questions, options, "questions")
    questions, vectors = _first(questions, options.questions), vectors[: options.questions]
    model = MatchModel.shipped(without=frozenset(options.without))
    bounds = options.max_error_ratio or [0.01]
    results: dict[str, Value] = {"questions": len(questions)}
    notes: list[str] = []
    stream = Stream(name="once", questions=questions, vectors=vectors, order=np.arange(len(questions)))
    for number, bound in enumerate(bounds):
        found, line = _played(stream, model, bound, options.seed)
        suffix = "" if number == 0 else f"_at_{bound:g}"
        results |= {f"{name}{suffix}": value for name, value in found.items()}
        notes.append(line)
    threshold = model.threshold(bounds[0])
    parts = [changed_meaning(encoder, model, threshold, options), _crafted(encoder, model, threshold, options)]
    if options.data is not None:
        parts.append(_elsewhere(encoder, model, threshold, options))
        if options.audit_ratio:
            parts.append(_audited(encoder, (questions, vectors), bounds, options))
    for found, shown in parts:
        results |= found
        notes += shown
    return Card(
        bench="cache_quality",
        arrivals=f"{len(questions)} questions in sequence ({'made' if options.data is None else 'QQP calibration'})",
        results=results,
        notes=tuple(notes),
    )


def _played(stream: Stream, model: MatchModel, bound: float, seed: int) -> tuple[dict[str, Value], str]:
    """One bound, without audits; the threshold follows the stream as in the gateway."""
    match_models = MatchModels(first=model, encoder_id=None, learn=lambda samples: model)
    played = play_audited(stream, match_models, bound, Audits(audit_ratio=0.0)).played
    low, high = played.error_limits(seed)
    found: dict[str, Value] = {
        "max_error_ratio": bound,
        "hit_ratio": played.hit_ratio,
        "error_ratio": played.error_ratio,
        "error_high": high,
        "threshold_hit_ratio": best_threshold_hits(stream.questions, stream.vectors, played.error_ratio),
    }
    line = f"bound {bound:g}: {played.hits.sum()} hits, {played.wrong.sum()} wrong, error {low:.4f} to {high:.4f}"
    return found, line


def _audited(
    encoder: TextEncoder, prompt: tuple[Questions, Vectors], bounds: Sequence[float], options: argparse.Namespace
) -> Measured:
    """Streams with repeats, and with a change of domain in either direction, with the gateway's audits."""
    intents = read_intents(options.data)
    intent_vectors = _vectors(encoder, intents, options, "intents")
    match_models = MatchModels.shipped()
    found: dict[str, Value] = {}
    notes = []
    for stream in streams_of(prompt, (intents, intent_vectors), options.seed):
        for bound, ratio in product(bounds, options.audit_ratio):
            audits = Audits(audit_ratio=ratio, noise=options.audit_noise, seed=options.seed)
            audited = play_audited(stream, match_models, bound, audits)
            name = f"{stream.name}_at_{bound:g}_audited_{ratio:g}"
            found[f"{name}_hit_ratio"] = audited.played.hit_ratio
            found[f"{name}_error_ratio"] = audited.played.error_ratio
            found[f"{name}_error_high"] = audited.played.error_limits(options.seed)[1]
            notes.append(f"{stream.name}, bound {bound:g}, audited {ratio:g}: {', '.join(describe(audited))}")
    return found, notes


def _crafted(encoder: TextEncoder, model: MatchModel, threshold: float, options: argparse.Namespace) -> Measured:
    found: dict[str, Value] = {}
    notes = []
    for family in FAMILIES:
        served, near = served_ratio(encoder, model, threshold, family, options.crafted, options.seed)
        found[f"crafted_{family}_served"] = served
        notes.append(f"crafted by {family}: {served:.1%} served; a threshold of 0.9 would serve {near:.1%}")
    return found, notes


def _elsewhere(encoder: TextEncoder, model: MatchModel, threshold: float, options: argparse.Namespace) -> Measured:
    """What questions that stand alone get from other conversations, where the policy allows that."""
    prompt = read_conversations(options.data)
    alone = prompt.standing_alone
    vectors = np.zeros((len(alone), encoder.dimensions), np.float32)
    vectors[alone] = _encoded(
        encoder, [text for text, is_alone in zip(prompt.questions.texts, alone, strict=True) if is_alone]
    )
    played = play_alone(prompt, vectors, model, threshold)
    equal = prompt.equal_elsewhere
    found: dict[str, Value] = {
        "standalone_ratio": float(alone.mean()),
        "standalone_of_equal_elsewhere": int((alone & equal).sum()),
        "history_wrong": int(played.wrong.sum()),
    }
    return found, [
        f"conversations: {alone.sum()} of {len(alone)} questions stand alone, {(alone & equal).sum()} of the "
        f"{equal.sum()} that mean something else elsewhere; {played.hits.sum()} served, {played.wrong.sum()} wrong"
    ]


def changed_meaning(encoder: TextEncoder, model: MatchModel, threshold: float, options: argparse.Namespace) -> Measured:
    """Shares of the pairs of changed meaning that would be served, and of paraphrases and typos that are."""
    shares: dict[str, Value] = {}
    notes = []
    for is_held_out in (False, True):
        served, total = 0, 0
        for kind in KINDS:
            close = close_pairs(encoder, kind, is_held_out, options.seed, options.pairs)
            given = [pair for pair, cosine in close if _is_given(model, pair, cosine, threshold)]
            served, total = served + len(given), total + len(close)
            line = "held out" if is_held_out else "tuned on"
            notes.append(f"changed {kind:<9} ({line}): {len(given)} of {len(close)} served")
        shares["changed_meaning_served_held_out" if is_held_out else "changed_meaning_served"] = served / max(1, total)
    wordings = list(islice(paraphrases(options.seed), options.pairs))
    slips = list(typos([cached for _, cached in wordings], options.seed))
    marks = [(cached.rstrip("?"), cached) for _, cached in wordings]
    for name, variants in (("paraphrases", wordings), ("typos", slips), ("without_mark", marks)):
        shares[f"{name}_served"] = _served_ratio(encoder, model, variants, threshold)
        notes.append(f"{name}: {shares[f'{name}_served']:.1%} of {len(variants)} served")
    return shares, notes


def _served_ratio(
    encoder: TextEncoder, model: MatchModel, variants: Sequence[tuple[str, str]], threshold: float
) -> float:
    """The share of variants whose stored text would be served, when it is the only one."""
    left, right = (_encoded(encoder, [pair[side] for pair in variants]) for side in (0, 1))
    served = 0
    for (one, other), cosine in zip(variants, (left * right).sum(axis=1), strict=True):
        found = model.match_probability(one, other, similarity=float(cosine), runner_up=None, track=None)
        served += found >= threshold
    return served / max(1, len(variants))


def close_pairs(encoder: TextEncoder, kind: Kind, is_held_out: bool, seed: int, count: int) -> list[tuple[Pair, float]]:
    """The first so many that a threshold of 0.8 would serve, with their cosines; fewer when there are not as many."""
    tried = dict.fromkeys(islice(pairs(kind, is_held_out=is_held_out, seed=seed), _MOST_TRIED * count))
    found: list[tuple[Pair, float]] = []
    candidates = list(tried)
    for at in range(0, len(candidates), count):
        some = candidates[at : at + count]
        cached = encoder.encode([canonical_question(pair.cached) for pair in some])
        prompt = encoder.encode([canonical_question(pair.prompt) for pair in some])
        cosines = (cached * prompt).sum(axis=1)
        found += [(pair, float(cosine)) for pair, cosine in zip(some, cosines, strict=True) if cosine >= MIN_COSINE]
        if len(found) >= count:
            break
    return found[:count]


def _is_given(model: MatchModel, pair: Pair, cosine: float, threshold: float) -> bool:
    return model.match_probability(pair.prompt, pair.cached, similarity=cosine, runner_up=None, track=None) >= threshold


def _encoder(folder: Path) -> OnnxEncoder:
    files = installed_model()
    graph = graph_file(folder, files, "int8").make(lambda: build_graph(files, "int8"))
    return OnnxEncoder(graph, files, encoder_id(files, "int8"))


def _vectors(encoder: TextEncoder, questions: Questions, options: argparse.Namespace, name: str) -> Vectors:
    """Return the vectors of all questions, from the file of an earlier run if there is one."""
    file = None if options.vectors is None else options.vectors / f"{name}.npy"
    if file is not None and file.exists() and options.data is not None:
        return np.asarray(np.load(file), np.float32)
    vectors = _encoded(encoder, questions.texts)
    if file is not None and options.data is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, vectors)
    return vectors


def _encoded(encoder: TextEncoder, texts: Sequence[str]) -> Vectors:
    forms = [canonical_question(text) for text in texts]
    return np.concatenate([encoder.encode(forms[at : at + _AT_ONCE]) for at in range(0, len(forms), _AT_ONCE)])


def _first(questions: Questions, count: int) -> Questions:
    return Questions(
        texts=questions.texts[:count],
        question_groups=questions.question_groups[:count],
        components=questions.components[:count],
    )
