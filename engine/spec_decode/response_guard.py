"""Comparison of whole responses with draft tokens and without, to decide which are complete sooner.

The duration of steps does not include every cost: caches emptied by drafting, rejected predictions, waiting
sequences. A few responses in a hundred, generated the other way, measure all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

from engine.step.sequence import Sequence

_RETAINED = 12
_FEWEST = 4
"""Number of responses of either way that a verdict needs."""
_BLOCK = 4
"""Number of successive responses generated the other way, for each sequence of a step.

So responses that share steps are mostly generated the same way.
"""
_FIRST_INTERVAL, _LONGEST_INTERVAL, _GROWTH = 2, 32, 4
"""First and longest interval, in blocks, until the other way is tried again, and its growth after a slower trial.

The first interval is short, because draft tokens improve as responses are generated with them.
"""
_LEAST_SAVED = 1.03
"""Least speed-up by draft tokens at which they are used."""
_CLOSED_TOKENS = 64
"""Output tokens after which draft tokens are tried anyway: a long response may come to repeat itself."""


class ResponseKind(NamedTuple):
    """Responses of similar gain: by the sequences they share steps with, and what there is to copy."""

    num_seqs_bits: int
    prompt_size: int
    """Power of four of its tokens."""
    has_prediction: bool
    """True if the request predicts its answer."""
    is_drawn: bool
    """True if the sampler draws an answer with a prediction, which it then follows less far."""


class _Response:
    """One response that is being generated."""

    __slots__ = ("begun_at", "counts", "kind", "num_tokens", "with_drafts")

    def __init__(self, kind: ResponseKind, *, with_drafts: bool) -> None:
        self.kind = kind
        self.with_drafts = with_drafts
        self.begun_at: float | None = None
        """Instant at which the measurement began."""
        self.num_tokens = 0
        """Number of tokens that the sequence had at `begun_at`."""
        self.counts = True
        """True if the response's duration is a valid measurement."""


class ResponseGuard:
    """Decision, at the beginning of each response, whether tokens are drafted for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trials: dict[ResponseKind, _Trial] = {}
        self._responses: WeakKeyDictionary[Sequence, _Response] = WeakKeyDictionary()

    def is_open(self, seq: Sequence, num_seqs: int) -> bool:
        """Return whether tokens are drafted for a sequence in a step of `num_seqs` sequences."""
        response = self._responses.get(seq)
        if response is None:
            response = self._responses[seq] = self._decide(seq, num_seqs)
        elif num_seqs.bit_length() > response.kind.num_seqs_bits:
            # Further sequences joined, so its duration is no valid measurement any more.
            response.counts = False
        if not response.with_drafts and seq.num_output_tokens >= _CLOSED_TOKENS:
            self._measure(seq, response)  # up to here it had no draft tokens
            return True
        return response.with_drafts

    def begin(self, seq: Sequence, ago_s: float, *, num_generated: int) -> None:
        """Begin to measure a response of which no token was taken over yet.

        Args:
            seq: Its sequence.
            ago_s: How long ago its time began.
            num_generated: Tokens that it had then, of those that are about to be taken over.
        """
        response = self._responses.get(seq)
        if response is not None:
            response.begun_at, response.num_tokens = self._clock() - ago_s, seq.num_tokens + num_generated

    def end(self, seq: Sequence) -> None:
        """Update the trial from a complete response."""
        response = self._responses.pop(seq, None)
        if response is not None:
            self._measure(seq, response)

    def _measure(self, seq: Sequence, response: _Response) -> None:
        """Update the trial from the tokens so far, all generated one way; only the first call counts."""
        num_tokens = seq.num_tokens - response.num_tokens
        if response.begun_at is not None and response.counts and num_tokens > 0:
            seconds = (self._clock() - response.begun_at) / num_tokens
            self._trials[response.kind].observe(seconds, with_drafts=response.with_drafts)
        response.counts = False

    def _decide(self, seq: Sequence, num_seqs: int) -> _Response:
        prompt_size = (seq.num_prompt_tokens.bit_length() + 1) // 2
        predicts = seq.prediction is not None
        kind = ResponseKind(num_seqs.bit_length(), prompt_size, predicts, predicts and seq.params.temperature > 0.0)
        trial = self._trials.get(kind)
        if trial is None:
            trial = self._trials[kind] = _Trial(_BLOCK * num_seqs)
        return _Response(kind, with_drafts=trial.next_with_drafts())


class _Trial:
    """Trial of both ways: blocks of responses the usual way, and now and then one the other way."""

    def __init__(self, block: int) -> None:
        """Begin a trial with `block` successive responses in each block of the other way."""
        self._block = block
        self._seconds: dict[bool, deque[float]] = {way: deque(maxlen=_RETAINED) for way in (False, True)}
        self._usual = True
        self._is_trying = False
        self._interval = _FIRST_INTERVAL
        self._num_left = block

    def next_with_drafts(self) -> bool:
        """Return whether the next response gets draft tokens."""
        if not self._num_left:
            if self._is_trying:
                self._conclude()
            self._is_trying = not self._is_trying
            if self._is_trying and self._interval == _FIRST_INTERVAL:
                self._seconds[not self._usual].clear()  # measured while the acceptance rates were still priors
            self._num_left = self._block * (1 if self._is_trying else self._interval)
        self._num_left -= 1
        return self._usual != self._is_trying

    def observe(self, seconds: float, *, with_drafts: bool) -> None:
        """Record one response that took `seconds` for each token."""
        self._seconds[with_drafts].append(seconds)

    def _conclude(self) -> None:
        if min(map(len, self._seconds.values())) < _FEWEST:
            return
        pays = median(self._seconds[True]) * _LEAST_SAVED < median(self._seconds[False])
        self._interval = min(_GROWTH * self._interval, _LONGEST_INTERVAL) if pays == self._usual else _FIRST_INTERVAL
        self._usual = pays
