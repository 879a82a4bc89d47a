"""Public outcomes: what a trained predictor makes of them beside simple routers fitted on the same prompts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from gateway.cli.outcomes.quality_training import embedded
from loadtests.routing.routing_curve import Floats, Scores
from routing_policies.quality.features import Features, features_of
from routing_policies.quality.model import PairModel
from routing_policies.quality.preamble import opening_of
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import PairOutcome
from routing_policies.quality.training.pair_trainer import PairTrainer

Rows = NDArray[np.int64]

SETS = ("mmlu_pro", "llmrouter")

MIN_CATEGORY = 100
MIN_GAP = 0.02
"""Where the models are equally good there is nothing to recover."""
TRAIN_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class DataSet:
    """Prompts with the outcomes of two models."""

    name: str
    texts: list[str]
    features: list[Features]
    categories: NDArray[np.str_]
    vectors: NDArray[np.float32]
    scores: Scores

    @property
    def lengths(self) -> Floats:
        """In characters."""
        return np.array([len(text) for text in self.texts], dtype=np.float64)

    def outcomes(self, rows: Rows, *, with_categories: bool = True) -> list[PairOutcome]:
        """For training."""
        lost = self.scores.large - self.scores.small
        return [
            PairOutcome(
                features=self.features[row],
                lost=float(lost[row]),
                opening=opening_of(self.texts[row][:200].split()),
                category=str(self.categories[row]) if with_categories else "",
            )
            for row in rows
        ]


def read_sets(folder: Path, encoder_folder: Path, cache_folder: Path | None) -> Iterator[DataSet]:
    """Read MMLU-Pro with Llama 3.1 8B and 70B, and LLMRouter with Mistral 7B and Nemotron 51B.

    `cache_folder` stores the vectors for further runs.
    """
    lines = _lines(folder / "route_mmlupro.jsonl.gz")
    small, large = _columns(next(lines), "Meta-Llama-3_1-8B-Instruct", "Meta-Llama-3_1-70B-Instruct")
    known = [line for line in lines if "-" not in (line["c"][small], line["c"][large])]
    queries = [_question(line) for line in known]
    scores = [[float(line["c"][column]) for line in known] for column in (small, large)]
    categories = [line["category"] for line in known]
    yield _set("mmlu_pro", queries, categories, scores, encoder_folder, cache_folder)
    lines = _lines(folder / "route_llmrouter.jsonl.gz")
    small, large = _columns(next(lines), "mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct")
    known = list(lines)
    scores = [[float(line["s"][column]) for line in known] for column in (small, large)]
    queries, categories = [line["prompt"] for line in known], [line["task"] for line in known]
    yield _set("llmrouter", queries, categories, scores, encoder_folder, cache_folder)


def needs(data: DataSet, train: Rows, test: Rows) -> dict[str, Floats]:
    """How much each router wants the large model for each test prompt; all are fitted on the same rows. Only the
    category table, `penstock` and `penstock_no_embedding` are given the test prompts' categories."""
    gains = data.scores.large - data.scores.small
    known, queries = data.vectors[train], data.vectors[test]
    table = {name: gains[train][data.categories[train] == name].mean() for name in set(data.categories[train])}
    overall = gains[train].mean()
    similar = queries @ known.T
    found = {
        "category_table": np.array([table.get(name, overall) for name in data.categories[test]]),
        "prompt_length": data.lengths[test],
        "logistic_regression": _regression(known, (gains[train] > 0).astype(np.float64), queries),
    }
    for count in (20, 100):
        nearest = np.argpartition(-similar, count, axis=1)[:, :count]
        found[f"knn_{count}"] = gains[train][nearest].mean(axis=1)
    model = trained_on(data, train)
    return {
        "penstock": need_of(model, data, test, with_category=True),
        "penstock_untold": need_of(model, data, test),
        "penstock_no_embedding": need_of(model, data, test, with_category=True, with_vector=False),
        **found,
    }


def trained_on(data: DataSet, rows: Rows) -> PairModel:
    """With embeddings and categories."""
    trainer = PairTrainer(data.outcomes(rows), vectors=data.vectors[rows])
    return trainer.fit(weak="s", strong="l", trained_on=data.name, encoder="e")


def need_of(
    model: PairModel, data: DataSet, rows: Rows, *, with_category: bool = False, with_vector: bool = True
) -> Floats:
    """By the features, the embedding, and the category, as the category table is given it; most for unknown prompts."""
    return -np.array(
        [
            model.predict(
                data.features[row],
                data.vectors[row] if with_vector else None,
                kind=str(data.categories[row]) if with_category else "",
            ).probability
            for row in rows
        ]
    )


def random_split(data: DataSet, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on."""
    order = np.random.default_rng(seed).permutation(len(data.texts))
    cut = int(TRAIN_SHARE * len(order))
    return order[:cut], order[cut:]


def categories_left_out(data: DataSet) -> Iterator[tuple[str, Rows, Rows]]:
    """Each category that is large enough and has a gap, with what to train on."""
    for name in sorted(set(data.categories)):
        test = np.flatnonzero(data.categories == name)
        if len(test) >= MIN_CATEGORY and data.scores.take(test).gap >= MIN_GAP:
            yield name, np.flatnonzero(data.categories != name), test


def joined(sets: Sequence[DataSet]) -> DataSet:
    """One mix of all of them."""
    return DataSet(
        "mix",
        [text for data in sets for text in data.texts],
        [features for data in sets for features in data.features],
        np.concatenate([data.categories for data in sets]),
        np.concatenate([data.vectors for data in sets]),
        Scores(
            np.concatenate([data.scores.small for data in sets]), np.concatenate([data.scores.large for data in sets])
        ),
    )


def _regression(known: NDArray[np.float32], targets: Floats, queries: NDArray[np.float32]) -> Floats:
    """Return what a logistic regression on the embedding as it is states, with its usual default of C = 1."""
    if len(set(targets > 0)) < 2:
        return np.zeros(len(queries))
    found = LogisticRegression(max_iter=300).fit(known, targets > 0)
    return np.asarray(found.decision_function(queries), dtype=np.float64)


def _set(
    name: str,
    texts: list[str],
    categories: list[str],
    scores: list[list[float]],
    folder: Path,
    cache_folder: Path | None,
) -> DataSet:
    features = [features_of(Prompt(text, num_chars=len(text))) for text in texts]
    vectors = _vectors(name, texts, folder, cache_folder)
    return DataSet(name, texts, features, np.array(categories), vectors, Scores(*map(np.array, scores)))


def _vectors(name: str, texts: list[str], folder: Path, cache_folder: Path | None) -> NDArray[np.float32]:
    path = None if cache_folder is None else cache_folder / f"{name}.npy"
    if path is not None and path.exists():
        found: NDArray[np.float32] = np.load(path)
        if len(found) == len(texts):
            return found
    found, _ = embedded(texts, folder)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, found)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _columns(header: dict[str, Any], *models: str) -> tuple[int, ...]:
    return tuple(header["models"].index(model) for model in models)


def _question(line: dict[str, Any]) -> str:
    options = [f"{chr(ord('A') + number)}. {option}" for number, option in enumerate(line["options"])]
    return "\n".join([line["question"], *options])
