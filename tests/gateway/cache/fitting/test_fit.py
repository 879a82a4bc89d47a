"""Fitting finds what decides, on data that are made here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from gateway.cache.fitting.fit import TREES, Fit
from gateway.cache.fitting.neighbours import earlier_neighbours
from gateway.cache.fitting.questions import Questions
from gateway.cache.similarity.decision import MatchModel

_NOUNS = [
    *("quince", "medlar", "lamp", "kettle", "gutter", "fiddle", "canoe", "beehive"),
    *("trellis", "lantern", "ladder", "barrel", "saddle", "anvil", "loom"),
]
_VERBS = ["prune", "mend", "clean", "paint", "store", "weigh"]
_FORMS: tuple[Callable[[str, str], str], ...] = (
    lambda verb, noun: f"How do I {verb} a {noun}?",
    lambda verb, noun: f"How can I {verb} my {noun}?",
    lambda verb, noun: f"What is the best way to {verb} a {noun}?",
    lambda verb, noun: f"What is the best {noun} to {verb}?",
)


def stream(seed: int) -> tuple[Questions, np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """Questions about a few things; the last form means something else. A vector is its meaning and some noise."""
    rng, noise = Random(seed), np.random.default_rng(seed)
    texts, question_groups, vectors = [], [], []
    places = noise.normal(size=(len(_VERBS) * len(_NOUNS), 24))
    for _ in range(1500):
        verb, noun, form = rng.randrange(len(_VERBS)), rng.randrange(len(_NOUNS)), rng.randrange(4)
        thing = verb * len(_NOUNS) + noun
        texts.append(_FORMS[form](_VERBS[verb], _NOUNS[noun]))
        question_groups.append(2 * thing + (form == 3))
        vectors.append(places[thing] + 0.25 * noise.normal(size=24))
    rows = np.asarray(vectors, np.float32)
    components = np.array(question_groups) // 2
    return Questions(
        texts=texts, question_groups=np.array(question_groups), components=components
    ), rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def fitted() -> MatchModel:
    questions, vectors = stream(seed=3)
    return MatchModel(
        Fit(
            encoder="made up",
            seed=1,
            note=lambda text: None,
            trees={**TREES, "max_iter": 40, "min_samples_leaf": 40},
            num_repeats=1,
        ).run(questions, vectors)
    )


def test_the_fitted_model_learns_what_changes_the_meaning(fitted: MatchModel) -> None:
    same = fitted.match_probability(
        "How do I mend a canoe?", "How can I mend my canoe?", similarity=0.93, runner_up=0.9, track=None
    )
    other = fitted.match_probability(
        "What is the best way to mend a canoe?",
        "What is the best canoe to mend?",
        similarity=0.93,
        runner_up=0.9,
        track=None,
    )
    assert same > 0.9
    assert other < 0.3


def test_its_probabilities_are_calibrated_on_a_new_stream(fitted: MatchModel) -> None:
    questions, vectors = stream(seed=4)
    near = earlier_neighbours(vectors, 2)
    match_probabilities, right = [], []
    for number in range(200, 1500):
        place = int(near.places[number, 0])
        match_probabilities.append(
            fitted.match_probability(
                questions.texts[number],
                questions.texts[place],
                similarity=float(near.similarities[number, 0]),
                runner_up=float(near.similarities[number, 1]),
                track=None,
            )
        )
        right.append(questions.question_groups[number] == questions.question_groups[place])
    with_model = np.array(match_probabilities) > 0
    assert np.array(match_probabilities)[with_model].mean() == pytest.approx(
        np.array(right)[with_model].mean(), abs=0.06
    )
