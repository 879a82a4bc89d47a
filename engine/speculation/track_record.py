"""How good each kind of draft has been, sequence by sequence and over all of them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from engine.core.sequence import Sequence
from engine.speculation.acceptance import AcceptanceRate

Kind = int
"""Lookups by the number of tokens that matched; besides them MODEL and FORCED."""
MODEL: Kind = 0
"""Said by the draft model."""
FORCED: Kind = -1
"""The only text a grammar leaves; only its division into tokens may be another."""

_CROWD_TRIALS = 16.0
_CROWD_DECAY = 0.99
_OWN_TRIALS = 6.0
_OWN_DECAY = 0.9
_PRIORS = {FORCED: 0.9, MODEL: 0.7}
_PRIOR = 0.3
"""Of lookups: low, for they are judged without being used and show soon enough what they are worth."""


@dataclass(frozen=True, slots=True)
class _Guess:
    """Tokens that were thought to follow when the sequence had `num_tokens`."""

    kind: Kind
    num_tokens: int
    token_ids: SequenceOf[int]


@dataclass(slots=True)
class _Record:
    rates: dict[Kind, AcceptanceRate] = field(default_factory=dict)
    guesses: list[_Guess] = field(default_factory=list)


class TrackRecord:
    """Judges every guess by what the sequence said next, whether it was verified as a draft or only kept in mind.

    So lookups go on being judged while they are not used, which costs nothing; a new sequence starts from how the
    others fared.
    """

    def __init__(self) -> None:
        self._records: WeakKeyDictionary[Sequence, _Record] = WeakKeyDictionary()
        self._crowd: dict[Kind, AcceptanceRate] = {}

    def guess(self, seq: Sequence, kind: Kind, token_ids: SequenceOf[int]) -> None:
        """Remember what is expected to follow the tokens that the sequence has now."""
        self._record(seq).guesses.append(_Guess(kind, seq.num_tokens, token_ids))

    def settle(self, seq: Sequence) -> None:
        """Judge the guesses by the tokens that came since."""
        record = self._record(seq)
        for guess in record.guesses:
            actual = seq.token_ids[guess.num_tokens : guess.num_tokens + len(guess.token_ids)]
            num_right = 0
            while num_right < len(actual) and actual[num_right] == guess.token_ids[num_right]:
                num_right += 1
            # Guesses behind the first wrong one, or behind the last token there is, were not put to the test.
            num_tested = min(len(actual), num_right + 1)
            self._rate(record, guess.kind).observe(num_tested, num_right)
            self._crowd_rate(guess.kind).observe(num_tested, num_right)
        record.guesses.clear()

    def acceptance(self, seq: Sequence, kind: Kind) -> float:
        """Probability that the next draft of this kind is right."""
        return self._rate(self._record(seq), kind).value

    def _record(self, seq: Sequence) -> _Record:
        record = self._records.get(seq)
        if record is None:
            record = self._records[seq] = _Record()
        return record

    def _rate(self, record: _Record, kind: Kind) -> AcceptanceRate:
        rate = record.rates.get(kind)
        if rate is None:
            prior = self._crowd_rate(kind).value
            rate = AcceptanceRate(prior=prior, prior_trials=_OWN_TRIALS, decay=_OWN_DECAY)
            record.rates[kind] = rate
        return rate

    def _crowd_rate(self, kind: Kind) -> AcceptanceRate:
        rate = self._crowd.get(kind)
        if rate is None:
            prior = _PRIORS.get(kind, _PRIOR)
            rate = self._crowd[kind] = AcceptanceRate(prior=prior, prior_trials=_CROWD_TRIALS, decay=_CROWD_DECAY)
        return rate
