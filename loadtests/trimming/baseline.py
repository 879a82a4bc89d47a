"""The baseline of trimming: BM25 over windows of three sentences, as retrieval libraries do it by default."""

from __future__ import annotations

import math
import re
from collections import Counter

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w+")
_WINDOW = 3
_K1 = 1.2
_B = 0.75


def bm25_passages(text: str, question: str, num_bytes: int) -> str:
    """Return the best windows of a text within a size, in order."""
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence]
    windows = [" ".join(sentences[place : place + _WINDOW]) for place in range(0, len(sentences), _WINDOW)]
    scores = _scores(windows, question)
    retained: set[int] = set()
    for place in sorted(range(len(windows)), key=lambda place: (-scores[place], place)):
        size = len(windows[place].encode()) + 1
        if size <= num_bytes:
            retained.add(place)
            num_bytes -= size
    return " ".join(windows[place] for place in sorted(retained))


def _scores(windows: list[str], question: str) -> list[float]:
    words = [Counter(_WORD.findall(window.lower())) for window in windows]
    lengths = [sum(counts.values()) for counts in words]
    mean = sum(lengths) / len(lengths)
    frequency = Counter(word for counts in words for word in counts)
    wanted = set(_WORD.findall(question.lower()))
    scores = []
    for counts, length in zip(words, lengths, strict=True):
        norm = _K1 * (1 - _B + _B * length / mean)
        score = 0.0
        for word in sorted(wanted & counts.keys()):
            rarity = math.log(1 + (len(windows) - frequency[word] + 0.5) / (frequency[word] + 0.5))
            score += rarity * counts[word] * (_K1 + 1) / (counts[word] + norm)
        scores.append(score)
    return scores
