"""Cues: words that mark a kind of work, in the many wordings that a request for it may have."""

from __future__ import annotations

from typing import Final

_KINDS: Final = {
    "reversing": "reverse reversed reversing backwards backward inverted invert flip flipped opposite mirror",
    "sorting": "sort sorted sorting alphabetical alphabetically alphabet ascending descending arrange rank order "
    "ordered",
    "comparing": "than most least best worst more less fewer cheaper larger smaller bigger higher lower longer shorter "
    "greater compare compared comparison difference versus vs whichever",
    "extremes": "cheapest lowest highest largest smallest biggest greatest longest shortest fewest minimum maximum "
    "nearest furthest oldest youngest latest earliest top dearest",
    "counting": "count counting tally often many times number occurrences total frequency",
    "copying": "repeat copy echo exactly verbatim again say type",
    "converting": "convert converted conversion change express equals kilometres metres centimetres millimetres miles "
    "feet inches yards kilograms grams tonnes pounds ounces litres millilitres gallons hours minutes seconds days "
    "weeks",
    "adding": "+ add added plus sum total altogether increase",
    "subtracting": "- subtract minus less reduce decrease take difference remain left",
    "multiplying": "* × times multiply multiplied product by squared",
    "dividing": "/ ÷ divide divided quotient ratio per half third percent percentage",
    "chaining": "then result that it this those these previous previously above answer earlier former same also",
    "relating": "whose who neighbour neighbor friend brother sister mother father owner colleague next beside",
    "structuring": "json list table xml yaml csv fields field keys key object array format extract bullet",
    "reasoning": "why explain because prove proof derive therefore suppose assume justify reason if would could",
    "choosing": "which following true false correct incorrect except not statement statements best describes",
    "knowing": "when where born year century history famous capital president war king invented discovered",
    "computing": "calculate compute find solve equation function integral derivative probability value determine "
    "evaluate simplify area volume velocity mass",
    "coding": "code python java function program implement algorithm string return class def script bug output",
    "writing": "write essay story poem email letter summarise summarize summary translate rewrite paragraph describe",
    "greeting": "hello hi hey thanks thank goodbye bye morning evening welcome please",
}

CUES: Final = tuple(_KINDS)
_WORDS_OF: Final = tuple(frozenset(words.split()) for words in _KINDS.values())


def cues_in(words: frozenset[str] | set[str]) -> list[float]:
    """Return 1 for each kind of work, in the order of CUES, of which some word is present, else 0."""
    return [0.0 if words.isdisjoint(kind) else 1.0 for kind in _WORDS_OF]
