"""Differences: the words that two wordings do not share, as numbers to weigh, and the veto if there is one.

Pure, and symmetric but for the names of the sides. How likely a difference changes the answer is fitted
(decision.py); what always changes it is a veto (vetoes.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.vetoes import Veto, find_veto
from gateway.cache.similarity.wording import Word, Wording, in_one_language


class Differences(msgspec.Struct, frozen=True, gc=False):
    """The differences of a prompt's text from the text of a cache entry."""

    overlap: float
    """Words in common by rarity, over all words (weighted Jaccard); 1 when nothing that matters differs."""
    prompt_only: float
    """Rarity of the words that only the prompt has."""
    cached_only: float
    num_prompt_rare: int
    num_cached_rare: int
    num_grammar: int
    """Words of grammar on either side alone."""
    letters: float
    """Trigrams in common, over all trigrams (Dice)."""
    num_shared: int
    """Words in common, other than grammar."""
    length_ratio: float
    """Shorter over longer, in words."""
    num_words: int
    """Words of the shorter."""
    is_reordered: bool
    has_other_question: bool
    num_extra_numbers: int
    """Numbers on one side only."""
    num_extra_names: int
    span_prompt: int
    """Words between the beginnings and the ends that both texts share."""
    span_cached: int
    veto: Veto | None
    """The reason why it is another question, whatever the rest."""


def differences(prompt: str, cached: str) -> Differences:
    """Return the differences of two texts; never raises."""
    return compare_wordings(*in_one_language(Wording.of(prompt), Wording.of(cached)))


def compare_wordings(prompt: Wording, cached: Wording, without: frozenset[Veto] = frozenset()) -> Differences:
    """Return the differences of two texts that are taken apart already; `without` leaves out vetoes, for ablations."""
    found = Comparison.of(prompt, cached)
    only_prompt, only_cached = found.only_prompt, found.only_cached
    shared_weight = sum([word.rarity for word in found.shared])
    weight_prompt = sum([word.rarity for word in only_prompt])
    weight_cached = sum([word.rarity for word in only_cached])
    total = shared_weight + weight_prompt + weight_cached
    shorter, longer = sorted((len(prompt.words), len(cached.words)))
    both = [*only_prompt, *only_cached]
    return Differences(
        overlap=shared_weight / total if total else 1.0,
        prompt_only=weight_prompt,
        cached_only=weight_cached,
        num_prompt_rare=sum([word.rarity == 1.0 for word in only_prompt]),
        num_cached_rare=sum([word.rarity == 1.0 for word in only_cached]),
        num_grammar=sum([word.rarity == 0 for word in both]),
        letters=_dice(prompt.text, cached.text),
        num_shared=sum([word.rarity > 0 for word in found.shared]),
        length_ratio=shorter / longer if longer else 1.0,
        num_words=shorter,
        is_reordered=_is_reordered(prompt.words, cached.words),
        has_other_question=prompt.question != cached.question,
        num_extra_numbers=abs(len(prompt.numbers) - len(cached.numbers)),
        num_extra_names=sum([word.is_name for word in both]),
        span_prompt=len(prompt.words) - found.begin - found.end,
        span_cached=len(cached.words) - found.begin - found.end,
        veto=find_veto(found, without),
    )


def _is_reordered(prompt: Sequence[Word], cached: Sequence[Word]) -> bool:
    """Return whether the words that both have stand in another order."""
    ours, theirs = ({word.stem for word in words if word.rarity} for words in (prompt, cached))
    shared = ours & theirs
    return [word.stem for word in prompt if word.stem in shared] != [
        word.stem for word in cached if word.stem in shared
    ]


def _dice(one: str, other: str) -> float:
    left, right = ({text[at : at + 3] for at in range(len(text) - 2)} for text in (one, other))
    total = len(left) + len(right)
    return 2 * len(left & right) / total if total else float(one == other)
