"""Differences: what two wordings do not share, as numbers to weigh, and what forbids giving the answer.

Pure, and symmetric but for the names of the sides. How likely a difference makes another meaning is not known here:
that is fitted (decision.py). What always makes another meaning is a veto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from gateway.cache.similarity.additions import is_addition
from gateway.cache.similarity.lexicon import SAME_MEANING
from gateway.cache.similarity.opposites import are_opposites
from gateway.cache.similarity.stems import are_variants
from gateway.cache.similarity.wording import Word, Wording

Veto = Literal[
    "number",
    "unit",
    "date",
    "negation",
    "opposite",
    "direction",
    "identifier",
    "name",
    "word",
    "verb",
    "addition",
    "too_long",
]

_SYMMETRIC: Final = frozenset({"and", "or", "vs", "versus", "between", "among", "&", "/", "v", "nor", "plus", "with"})
"""What stands between two things that may be named in either order."""
_BOTH_WAYS: Final = frozenset({"far", "distanc", "between", "differenc", "versus", "vs"})
"""With these it is all one which comes first."""
_ORDERED: Final = frozenset({"then", "later", "afterward", "thereafter"})
"""With these it is not, whatever else stands between: `x and then y`."""
_REPLACING: Final = frozenset(
    {"replac", "substitut", "cover", "fill", "coat", "treat", "feed", "begin", "start", "end"}
)
"""Before them, `x with y` is another thing than `y with x`."""
_ASKING: Final = frozenset({"who", "whom", "what", "which"})
_DOING: Final = frozenset({"do", "does", "did"})
_GOVERNING: Final = frozenset({"from", "of", "on", "about", "against", "up", "with", "off"})
_AVERTING: Final = frozenset({"off", "out", "up", "from", "away", "against"})
_MAX_TURNED: Final = 24
MAX_SLOT: Final = 3
"""Words between equal beginnings and ends that count as one thing put in another's place."""


class Differences(msgspec.Struct, frozen=True, gc=False):
    """Of a text that was asked from one whose answer is kept."""

    overlap: float
    """Words in common by rarity, over all words (weighted Jaccard); 1 when nothing that matters differs."""
    asked_only: float
    """Rarity of what only the asked text says."""
    kept_only: float
    num_asked_rare: int
    num_kept_rare: int
    num_variants: int
    """Pairs of words that differ in their ending or by a slip of the pen."""
    num_same_meaning: int
    """Pairs of words that mean the same."""
    num_grammar: int
    """Words of grammar on either side alone."""
    letters: float
    """Trigrams in common, over all trigrams (Dice)."""
    num_shared: int
    """Words in common, other than grammar."""
    length_ratio: float
    """Shorter over longer, in words."""
    num_words: int
    """Of the shorter."""
    is_reordered: bool
    has_other_question: bool
    num_extra_numbers: int
    """Numbers on one side only."""
    num_extra_names: int
    span_asked: int
    """Words between the beginnings and the ends that both texts share."""
    span_kept: int
    veto: Veto | None
    """What makes it another question, whatever the rest."""


def differences(asked: str, kept: str) -> Differences:
    """Of two texts; never raises."""
    return compare_wordings(Wording.of(asked), Wording.of(kept))


def compare_wordings(asked: Wording, kept: Wording) -> Differences:
    """Of two texts that are taken apart already."""
    only_asked, only_kept, shared_weight, num_shared = _unmatched(asked.words, kept.words)
    num_same, num_variants = _pair_off(only_asked, only_kept)
    weight_asked = sum([word.rarity for word in only_asked])
    weight_kept = sum([word.rarity for word in only_kept])
    total = shared_weight + weight_asked + weight_kept
    begin, end = _shared_ends(asked.words, kept.words)
    shorter, longer = sorted((len(asked.words), len(kept.words)))
    both = [*only_asked, *only_kept]
    slot = _Slot(asked.words, kept.words, begin, end)
    return Differences(
        overlap=shared_weight / total if total else 1.0,
        asked_only=weight_asked,
        kept_only=weight_kept,
        num_asked_rare=sum([word.rarity == 1.0 for word in only_asked]),
        num_kept_rare=sum([word.rarity == 1.0 for word in only_kept]),
        num_variants=num_variants,
        num_same_meaning=num_same,
        num_grammar=sum([word.rarity == 0 for word in both]),
        letters=_dice(asked.text, kept.text),
        num_shared=num_shared,
        length_ratio=shorter / longer if longer else 1.0,
        num_words=shorter,
        is_reordered=_is_reordered(asked.words, kept.words),
        has_other_question=asked.question != kept.question,
        num_extra_numbers=abs(len(asked.numbers) - len(kept.numbers)),
        num_extra_names=sum([word.is_name for word in both]),
        span_asked=len(asked.words) - begin - end,
        span_kept=len(kept.words) - begin - end,
        veto=_veto(asked, kept, only_asked, only_kept, slot),
    )


def _unmatched(asked: Sequence[Word], kept: Sequence[Word]) -> tuple[list[Word], list[Word], float, int]:
    """Words without an equal one on the other side, and the rarity and number of those that have one."""
    left: dict[str, int] = {}
    for word in kept:
        left[word.stem] = left.get(word.stem, 0) + 1
    only_asked: list[Word] = []
    weight, count = 0.0, 0
    for word in asked:
        if left.get(word.stem):
            left[word.stem] -= 1
            weight += word.rarity
            count += word.rarity > 0
        else:
            only_asked.append(word)
    only_kept = []
    for word in reversed(kept):
        if left[word.stem]:
            left[word.stem] -= 1
            only_kept.append(word)
    return only_asked, only_kept, weight, count


def _pair_off(only_asked: list[Word], only_kept: list[Word]) -> tuple[int, int]:
    """Take out pairs that mean the same or are forms of one word; how many of each."""
    num_same = num_variants = 0
    for one in list(only_asked):
        if one.rarity == 0 or one.is_code:
            continue
        for other in only_kept:
            if other.rarity == 0 or other.is_code:
                continue
            if not SAME_MEANING.get(one.text, _NONE).isdisjoint(SAME_MEANING.get(other.text, _NONE)):
                num_same += 1
            elif are_variants(one.text, other.text):
                num_variants += 1
            else:
                continue
            only_asked.remove(one)
            only_kept.remove(other)
            break
    return num_same, num_variants


_NONE: Final[frozenset[int]] = frozenset()


class _Slot(NamedTuple):
    """What stands between the beginning and the end that two texts share."""

    asked: Sequence[Word]
    kept: Sequence[Word]
    begin: int
    end: int

    def is_replaced(self) -> bool:
        """Whether it is one short thing in another's place."""
        return 0 < len(self.asked) - self.begin - self.end <= MAX_SLOT and (
            0 < len(self.kept) - self.begin - self.end <= MAX_SLOT
        )

    def is_turned(self) -> bool:
        """Whether two things changed places in it."""
        before = {word.stem for word in self.asked[: self.begin]}
        if not before.isdisjoint(_BOTH_WAYS):
            return False
        asked, kept = (words[self.begin : len(words) - self.end] for words in (self.asked, self.kept))
        if abs(len(asked) - len(kept)) > 1:
            return False
        stems = [word.stem for word in asked], _met(kept, asked)
        if len(asked) == len(kept):
            return is_turned(*stems, is_replaced=not before.isdisjoint(_REPLACING))
        return not before.isdisjoint(_ASKING) and _is_asked_of_the_other(*stems)


def _veto(
    asked: Wording, kept: Wording, only_asked: Sequence[Word], only_kept: Sequence[Word], slot: _Slot
) -> Veto | None:
    veto = _veto_of_facts(asked, kept)
    if veto is not None:
        return veto
    if any(_are_opposed(one, other, asked, kept) for one in only_asked for other in only_kept):
        return "opposite"
    if only_asked and only_kept:
        if any(word.is_code for word in (*only_asked, *only_kept)):
            return "identifier"
        if any(word.is_name for word in only_asked) and any(word.is_name for word in only_kept):
            return "name"
        if slot.is_replaced() and any(one.rarity for one in only_asked) and any(one.rarity for one in only_kept):
            return "word"
    if _is_governed(only_asked, asked.words, kept.words) or _is_governed(only_kept, kept.words, asked.words):
        return "verb"
    if _averted(asked.words) != _averted(kept.words):
        return "negation"
    if _is_headed(only_asked, asked.words) or _is_headed(only_kept, kept.words):
        return "word"
    if slot.is_turned():
        return "direction"
    return "addition" if is_addition(asked, only_asked, kept) or is_addition(kept, only_kept, asked) else None


def _veto_of_facts(asked: Wording, kept: Wording) -> Veto | None:
    if not (asked.is_whole and kept.is_whole):
        return "too_long"
    if asked.numbers and kept.numbers and asked.numbers != kept.numbers:
        ours, theirs = Counter(asked.numbers), Counter(kept.numbers)
        if ours - theirs and theirs - ours:
            return "number"
    if asked.operators != kept.operators and (asked.numbers or kept.numbers):
        return "number"
    if asked.units - kept.units and kept.units - asked.units:
        return "unit"
    if asked.dates - kept.dates and kept.dates - asked.dates:
        return "date"
    denied = asked.num_negations, asked.num_exceptions
    return "negation" if denied != (kept.num_negations, kept.num_exceptions) else None


def _are_opposed(one: Word, other: Word, asked: Wording, kept: Wording) -> bool:
    """Words of grammar are in so many places that they count only next to the same word on both sides."""
    if not are_opposites(one.text, other.text):
        return False
    if one.rarity or other.rarity:
        return True
    if "with" in (one.text, other.text) and "no" in (one.text, other.text):
        return False
    return not _beside(one, asked.words).isdisjoint(_beside(other, kept.words))


def _beside(word: Word, words: Sequence[Word]) -> set[tuple[int, str]]:
    """What stands before (-1) and behind (1) it."""
    places = [at for at, known in enumerate(words) if known is word]
    found = {(-1, words[at - 1].stem) for at in places if at}
    return found | {(1, words[at + 1].stem) for at in places if at + 1 < len(words)}


def _is_governed(extra: Sequence[Word], words: Sequence[Word], others: Sequence[Word]) -> bool:
    """Whether one text does what the other says something about doing: `water it`, `refrain from watering it`."""
    theirs: dict[str, str] | None = None
    for word in extra:
        if not word.rarity:
            continue
        at = next(number for number, known in enumerate(words) if known is word) + 1
        if word.rarity == 1.0 and at < len(words) and words[at].text in _GOVERNING:  # not `the best way of watering`
            at += 1
        if at < len(words) and words[at].text.endswith("ing"):
            theirs = {other.stem: other.text for other in others} if theirs is None else theirs
            if not theirs.get(words[at].stem, "ing").endswith("ing"):
                return True
    return False


def _is_headed(extra: Sequence[Word], words: Sequence[Word]) -> bool:
    """Whether one text asks about something of what the other asks about: `the reverse of a good idea`."""
    if not any(word.text == "of" for word in extra):
        return False
    return any(
        following.text == "of" and any(word is one for one in extra)
        for word, following in pairwise(words)
        if word.rarity == 1.0
    )


def _averted(words: Sequence[Word]) -> set[str]:
    """What is not done, whichever verb says so: `put off watering`, `get out of watering`, `keep from watering`."""
    found = set()
    for at, word in enumerate(words[2:], start=2):
        if word.text.endswith("ing") and word.rarity:
            before = words[at - 1].text
            if before in ("of", "on") and at > 2:
                before = words[at - 2].text
            if before in _AVERTING:
                found.add(word.stem)
    return found


def _shared_ends(asked: Sequence[Word], kept: Sequence[Word]) -> tuple[int, int]:
    """How many words both begin with, and how many of the rest both end with."""
    shorter = min(len(asked), len(kept))
    begin = 0
    while begin < shorter and asked[begin].stem == kept[begin].stem:
        begin += 1
    end = 0
    while end < shorter - begin and asked[-1 - end].stem == kept[-1 - end].stem:
        end += 1
    return begin, end


def _met(words: Sequence[Word], others: Sequence[Word]) -> list[str]:
    """Stems, those of the other side where it has another form of a word, such as `go` for `going`."""
    stems = {other.stem for other in others}
    met = []
    for word in words:
        forms = () if word.stem in stems or not word.rarity else (other for other in others if _is_form(word, other))
        met.append(next((other.stem for other in forms), word.stem))
    return met


def _is_form(one: Word, other: Word) -> bool:
    shorter, longer = sorted((one.text, other.text), key=len)
    return longer == shorter + "ing" or (other.rarity > 0 and are_variants(one.text, other.text))


def _is_asked_of_the_other(asked: Sequence[str], kept: Sequence[str]) -> bool:
    """Whether who did it became whom it was done to: `(who) did Ada teach`, `(who) taught Ada`."""
    longer, shorter = (asked, kept) if len(asked) > len(kept) else (kept, asked)
    if longer[0] not in _DOING or len(shorter) < 2:
        return False
    rest = [*longer[1:]]
    return any(rest[at:] + rest[:at] == [*shorter] for at in range(1, len(rest)))


def is_turned(asked: Sequence[str], kept: Sequence[str], *, is_replaced: bool = False) -> bool:
    """Whether X and Y changed places around what stays between them: `x to y`, `y to x`; not `x and y`, `y and x`.

    `is_replaced`: the one takes the place of the other, so that `x with y` is turned, too.
    """
    length = len(asked)
    if length < 3 or length != len(kept) or length > _MAX_TURNED or sorted(asked) != sorted(kept):
        return False
    for left in range(1, length - 1):
        if asked[:left] != kept[length - left :]:
            continue
        for right in range(1, length - left):
            between = asked[left : length - right]
            if asked[length - right :] == kept[:right] and between == kept[right : length - left]:
                joint = _SYMMETRIC - {"with"} if is_replaced else _SYMMETRIC
                return joint.isdisjoint(between) or not _ORDERED.isdisjoint(between)
    return False


def _is_reordered(asked: Sequence[Word], kept: Sequence[Word]) -> bool:
    """Whether what both say stands in another order."""
    theirs = {word.stem for word in kept if word.rarity}
    ours = {word.stem for word in asked if word.rarity} & theirs
    return [word.stem for word in asked if word.stem in ours] != [word.stem for word in kept if word.stem in ours]


def _dice(one: str, other: str) -> float:
    left, right = {one[at : at + 3] for at in range(len(one) - 2)}, {other[at : at + 3] for at in range(len(other) - 2)}
    total = len(left) + len(right)
    return 2 * len(left & right) / total if total else float(one == other)
