"""Extraction of the sentences of a long text that bear on the question, by BM25 (Robertson and Zaragoza, 2009)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.trimming.conversation import Conversation, edited, has_code

MIN_PASSAGE_BYTES: Final = 1200
"""Size below which a text stays whole."""
MAX_SENTENCES: Final = 4000
"""Number of sentences of one text beyond which the text is left alone; ranking more would take too long."""

_K1: Final = 1.2
_B: Final = 0.6
_SECOND_HOP_WEIGHT: Final = 0.5
_NUM_SEEDS: Final = 3
_LEFT_OUT: Final = " […] "

_END: Final = re.compile(
    r"[.!?؟।。！？\n](?:"  # begins with one class of characters, to which a search skips quickly
    # No match within 3.5 or behind "e.g."; a run of marks matches once, from its first mark.
    r"""(?<=[.!?؟।])(?<![.!?؟।][.!?؟।])[.!?؟।]*+["')\]”’»]*+(?:$|\s+(?![a-z]))"""
    r"|(?<=[。！？])[。！？]*[」』”’）]*\s*"
    r"|(?<=\n)\s*)"
)
_QUESTION_MARKS: Final = "?？؟"
_WORD: Final = re.compile(r"\w+", re.UNICODE)
_UNSPACED: Final = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
"""Scripts that put no spaces between words, or attach endings to them: Thai, Kana, Han, Hangul."""
_STOP_WORDS: Final = (
    "a an and are as at be by can could did do does for from had has have he her his how i in is it its me my of on or "
    "our she so tell that the their them they this to was we were what when where which who will with would you your "
    "please question text notes read answer use following according"
)
_STOP: Final = frozenset(_STOP_WORDS.split())


def extract_passages(conversation: Conversation, budget_bytes: int) -> Conversation:
    """Reduce long user texts to the sentences that bear on the last question, until the conversation fits.

    The sentences keep their order. The question itself, code and short texts stay whole.

    Args:
        conversation: The messages to shorten.
        budget_bytes: Size that the whole conversation should fit, in bytes of UTF-8.
    """
    missing = conversation.num_prompt_bytes - budget_bytes
    if missing <= 0:
        return conversation
    messages = list(conversation.messages)
    question = _question_of(messages[-1].get("content"))
    if not question:
        return conversation
    least = len(question.encode()) + MIN_PASSAGE_BYTES // 4
    for index in range(len(messages)):
        if missing <= 0:
            break
        if messages[index]["role"] != "user":
            continue
        before = Conversation([messages[index]]).num_bytes
        keep = max(before - missing, least)
        messages[index] = edited(messages[index], lambda text, keep=keep: extract(text, question, keep))  # type: ignore[misc]
        missing -= before - Conversation([messages[index]]).num_bytes
    return Conversation(messages)


def extract(text: str, question: str, budget_bytes: int) -> str:
    """Return the sentences of `text` that bear on `question`, within the budget; the question keeps its position.

    Short texts, texts with fenced code, and texts with fewer than 3 or more than MAX_SENTENCES sentences come back
    unchanged.
    """
    size = len(text.encode())
    if size <= max(budget_bytes, MIN_PASSAGE_BYTES) or has_code(text):
        return text
    before, found, after = text.partition(question)
    passage = before + after if found else text
    sentences = sentences_of(passage)
    if len(sentences) > MAX_SENTENCES or len(sentences) < 3:
        return text
    room = budget_bytes - (len(question.encode()) if found else 0)
    retained = set(_best(sentences, question, room))
    if not retained and not found:
        return text  # no sentence fits, and a message must not become empty
    boundary = len(before) if found else len(text)
    return _joined(sentences, retained, question if found else "", boundary)


def sentences_of(text: str) -> list[str]:
    """Split the text into sentences and lines, each with the space behind it; joined, they give the whole text."""
    ends = [match.end() for match in _END.finditer(text)]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    return [text[start:end] for start, end in zip((0, *ends), ends, strict=False) if end > start]


def _joined(sentences: Sequence[str], retained: set[int], question: str, boundary: int) -> str:
    """Join the retained sentences in order, mark the gaps, and put the question at its old position."""
    pieces: list[str] = []
    position, is_gap, is_question = 0, False, not question
    for index, sentence in enumerate(sentences):
        if not is_question and position >= boundary:
            pieces.append(("\n\n" if pieces else "") + question + ("\n\n" if index < len(sentences) else ""))
            is_question = True
        position += len(sentence)
        if index in retained:
            pieces.append(_LEFT_OUT.lstrip() + sentence if is_gap else sentence)
            is_gap = False
        else:
            is_gap = bool(pieces) and not pieces[-1].endswith("\n\n")
    if not is_question:
        pieces.append("\n\n" + question)
    return "".join(pieces).strip()


def _question_of(content: object) -> str:
    """Return the question of a message: its last paragraph when that is short, else its first, else its last sentence.

    A short paragraph with a question mark takes precedence. A list of parts counts by its last text.
    """
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        content = texts[-1] if texts else ""
    if not isinstance(content, str):
        return ""
    paragraphs = [part.strip() for part in re.split(r"\n+", content) if part.strip()]
    if not paragraphs:
        return ""
    short = [part for part in (paragraphs[-1], paragraphs[0]) if len(part.encode()) <= MIN_PASSAGE_BYTES // 2]
    questions = [part for part in short if any(mark in part for mark in _QUESTION_MARKS)]
    if questions or short:
        return (questions or short)[0]
    return sentences_of(paragraphs[-1])[-1].strip()


def _best(sentences: Sequence[str], question: str, room_bytes: int) -> list[int]:
    """Return the indexes of the best sentences by rank until the room is used.

    Words that the best sentences share with others count too, at a lower weight. Where no sentence bears on the
    question, the text's first sentences are returned.
    """
    index = _Index(sentences)
    wanted = dict.fromkeys(_stems(question, {}))
    scores = index.scores(wanted)
    seeds = sorted(range(len(sentences)), key=lambda number: -scores[number])[:_NUM_SEEDS]
    rare = {word: None for seed in seeds if scores[seed] > 0 for word in index.words[seed] if word not in wanted}
    if rare:
        linked = index.scores(rare)
        weight = _SECOND_HOP_WEIGHT * max(scores, default=0.0) / (max(linked, default=0.0) or 1.0)
        scores = [score + weight * link for score, link in zip(scores, linked, strict=True)]
    retained: list[int] = []
    is_empty = max(scores) <= 0
    for number in sorted(range(len(sentences)), key=lambda number: (-scores[number], number)):
        if scores[number] <= 0 and not is_empty:
            break
        size = len(sentences[number].encode()) + len(_LEFT_OUT)
        if size <= room_bytes:
            retained.append(number)
            room_bytes -= size
    return retained


class _Index:
    """Inverted index of the stems in each sentence.

    Sums follow the order of words, so all processes cut a text alike.
    """

    __slots__ = ("_norms", "_postings", "words")

    def __init__(self, sentences: Sequence[str]) -> None:
        known: dict[str, str] = {}
        self.words = [_stems(sentence, known) for sentence in sentences]
        mean = sum(map(len, self.words)) / max(1, len(sentences)) or 1.0
        self._norms = [_K1 * (1 - _B + _B * len(words) / mean) for words in self.words]
        self._postings: dict[str, dict[int, int]] = {}
        for number, words in enumerate(self.words):
            for word in words:
                places = self._postings.setdefault(word, {})
                places[number] = places.get(number, 0) + 1

    def scores(self, wanted: Iterable[str]) -> list[float]:
        """Return the BM25 score of every sentence."""
        count, scores = len(self.words), [0.0] * len(self.words)
        for word in wanted:
            places = self._postings.get(word, {})
            weight = math.log(1 + (count - len(places) + 0.5) / (len(places) + 0.5)) * (_K1 + 1)
            for number, times in places.items():
                scores[number] += weight * times / (times + self._norms[number])
        return scores


def _stems(text: str, known: dict[str, str]) -> list[str]:
    """Return the words of a text in lower case, without English endings and without stop words.

    For scripts without spaces between words, each pair of neighbouring characters is one stem.

    Args:
        text: The text to split.
        known: Cache of stems by word; extended in place.
    """
    stems = []
    for word in _WORD.findall(text.casefold()):
        if not word.isascii() and _UNSPACED.search(word):
            stems += _parts(word)
            continue
        stem = known.get(word)
        if stem is None:
            stem = known[word] = "" if word in _STOP else _stem(word)
        if stem:
            stems.append(stem)
    return stems


def _parts(word: str) -> list[str]:
    """Split a word into pairs of characters where its script has no spaces; other stretches stay whole."""
    parts = [part for part in _UNSPACED.split(word) if part]
    for run in _UNSPACED.findall(word):
        parts += [run[place : place + 2] for place in range(len(run) - 1)] or [run]
    return parts


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
