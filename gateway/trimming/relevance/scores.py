"""Scores of segments: their bearing on a question, what they state that others do not, and where they stand."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.trimming.relevance.bm25 import SegmentIndex
from gateway.trimming.relevance.question import Question
from gateway.trimming.relevance.words import Words

NEIGHBOUR_WEIGHTS: Final = (0.25, 0.1)
"""Share of a segment's bearing on the question that its neighbours get, by distance."""
_LINKED_WEIGHT: Final = 0.5
"""Weight of words that the best segments share with others, for answers that take two steps."""
_NUM_SEEDS: Final = 3
_QUESTION_SHARE: Final = 0.7
"""Share of the question's words from which a segment is the question itself."""
_OTHER_SEED_WEIGHT: Final = 0.3
"""Weight of what leads on from the best segments that lack those words."""
_LINKED_SEGMENTS: Final = 8
_LINKED_SHARE: Final = 0.08
"""Share of the segments with a word up to which the word links two of them."""
_COMMON_WEIGHT: Final = 0.1
"""Weight of a linking word that is no name, beside one that is: answers that take two steps meet in names."""
_WORD: Final = re.compile(r"\w+")
_INFORMATION_WEIGHT: Final = 0.4
_SIMILARITY_WEIGHT: Final = 0.8
_LOW_SIMILARITY: Final = 0.15
"""Cosine similarity of texts that have nothing to do with each other."""
_POSITION_WEIGHT: Final = 0.02
_RECENCY_WEIGHT: Final = 0.08
_RECENCY_TURNS: Final = 4


class SegmentedText(msgspec.Struct, frozen=True):
    """Segments of one text, in order, with the text that opens the groups around each."""

    segments: Sequence[str]
    contexts: Sequence[str]
    age_turns: int = 0
    """Number of user messages behind it."""


class SegmentScores:
    """Scores of the segments of several texts, numbered through."""

    def __init__(self, texts: Sequence[SegmentedText], question: Question) -> None:
        words = self._words = Words()
        self._texts = texts
        rows = []
        context, context_stems = "", list[str]()
        for text in texts:
            for segment, context_of_segment in zip(text.segments, text.contexts, strict=True):
                if context_of_segment != context:  # the rows of a table or the members of a class share one
                    context, context_stems = context_of_segment, words.of(context_of_segment)
                rows.append([*words.of(segment), *context_stems])
        self._index = SegmentIndex(rows)
        self._bearing = self._lexical(question)
        self._information = self._index.information()

    @property
    def bearing(self) -> Sequence[float]:
        """Share of the question's words that each segment has, weighted by rarity; from 0 to about 1."""
        return self._bearing

    def total(self, similarities: Mapping[int, float] | None = None) -> list[float]:
        """Return the score of each segment; `similarities` are cosines to the question, by segment."""
        bearing = list(self._bearing)
        if similarities:
            missing = min(similarities.values())
            for number in range(len(bearing)):
                cosine = similarities.get(number, missing)
                bearing[number] += _SIMILARITY_WEIGHT * max(0.0, cosine - _LOW_SIMILARITY)
        scores: list[float] = []
        begin = 0
        for text in self._texts:
            end = begin + len(text.segments)
            scores += self._of_text(bearing[begin:end], begin, text.age_turns)
            begin = end
        return scores

    def _of_text(self, bearing: Sequence[float], begin: int, age_turns: int) -> list[float]:
        count = len(bearing)
        recency = _RECENCY_WEIGHT * 0.5 ** (age_turns / _RECENCY_TURNS)
        scores = []
        for place, own in enumerate(bearing):
            score = own + recency + _POSITION_WEIGHT * (1 - place / count)
            for distance, weight in enumerate(NEIGHBOUR_WEIGHTS, start=1):
                before = bearing[place - distance] if place >= distance else 0.0
                behind = bearing[place + distance] if place + distance < count else 0.0
                score += weight * max(before, behind)
            scores.append(score + _INFORMATION_WEIGHT * self._information[begin + place])
        return scores

    def _seeds(self, scores: Sequence[float], question: Question) -> dict[int, float]:
        """Return the segments that lead to others, each with its weight.

        A question of two steps says where the first one begins: by a name, or by its rarest word. The question itself,
        where it stands within a text, leads nowhere.
        """
        index = self._index
        own = [word for word, weight in question.weights.items() if weight >= 1]
        shared = Counter(number for word in own for number in index.segments_with(word))
        questioning = {number for number, count in shared.items() if count > _QUESTION_SHARE * len(own)}
        places = {word: [n for n in index.segments_with(word) if n not in questioning] for word in own}
        names = self._stems_of_names(question.text)
        known = [word for word in own if places[word]]
        seeds = {n: _OTHER_SEED_WEIGHT for n in self._best(range(len(scores)), scores, _NUM_SEEDS) if scores[n] > 0}
        if known:
            first = min(known, key=lambda word: (word not in names, len(places[word])))
            seeds |= dict.fromkeys(self._best(places[first], scores, 1), 1.0)
        return seeds

    def _best(self, numbers: Sequence[int], scores: Sequence[float], count: int) -> list[int]:
        return heapq.nsmallest(count, numbers, key=lambda number: (-scores[number], number))

    def _names_of(self, number: int) -> set[str]:
        """Return the stems of a segment's words with a capital letter or a digit."""
        for text in self._texts:
            if number < len(text.segments):
                return self._stems_of_names(text.segments[number])
            number -= len(text.segments)
        return set()

    def _stems_of_names(self, text: str) -> set[str]:
        names = [word for word in _WORD.findall(text) if word[0].isupper() or not word.isalpha()]
        return {stem for name in names for stem in self._words.of(name)}

    def _lexical(self, question: Question) -> list[float]:
        index, weights = self._index, question.weights
        scores = index.scores(weights)
        best = index.best_score(weights)
        if best <= 0:
            return scores
        scores = [score / best for score in scores]
        rare: dict[str, float] = {}
        most = max(_LINKED_SEGMENTS, int(_LINKED_SHARE * len(scores)))
        for seed, weight in self._seeds(scores, question).items():
            names = self._names_of(seed)
            for word in index.words[seed]:
                if word not in weights and 2 <= index.num_segments_with(word) <= most:
                    share = 1.0 if not names or word in names else _COMMON_WEIGHT
                    rare[word] = max(rare.get(word, 0.0), weight * share)
        if not rare:
            return scores
        linked = index.scores(rare)
        most_linked = max(index.scores(dict.fromkeys(rare, 1.0)))
        factor = _LINKED_WEIGHT * max(scores) / (most_linked or 1.0)
        return [score + factor * link for score, link in zip(scores, linked, strict=True)]
