"""Draft tokens of a predicted answer: its continuation behind the place that the answer has come to.

An answer may leave the prediction and come back to it, with other words in between or without some. So its place is
found anew each time: behind the longest agreement with the answer's newest tokens. Of equal ones, the one nearest to
the place that the last few tokens lead to counts.
"""

from __future__ import annotations

from typing import Any

from engine.cpu.jit.compiler import compiled_exactly

LONGEST_AGREEMENT = 16
"""Maximum number of newest tokens that are compared."""
AGREES_SO_FAR = LONGEST_AGREEMENT + 1
"""Agreement of an answer that has less than `LONGEST_AGREEMENT` tokens, all of them as predicted."""
BEGINS = AGREES_SO_FAR + 1
"""Agreement of an answer that has so few tokens that they show nothing of the rest."""
NUM_AGREEMENTS = BEGINS + 1
_FEW = 2
"""Number of tokens from which an answer shows whether it follows the prediction."""
ANCHOR = 3
"""Length of an agreement that is taken wherever it stands in the prediction."""
_LONGEST_GAP = 8
"""Maximum number of newest tokens behind an anchor that the prediction may have in other words."""
_NEAR = 8
"""Maximum distance, in tokens, of a shorter agreement from the expected place."""


@compiled_exactly
def align(prediction: Any, tail: Any, num_tail: int, num_output: int) -> tuple[int, int]:
    """Return the place in the prediction that continues an answer, and the agreement before it; (-1, 0) without one.

    Args:
        prediction: int64 tokens of the predicted answer.
        tail: int64; its first `num_tail` tokens are the newest ones of the text, draft tokens included.
        num_tail: Number of those tokens.
        num_output: Number of the answer's tokens so far, draft tokens included.
    """
    num_known = min(num_tail, num_output)
    place, size = _nearest(prediction, tail, num_tail, num_known, num_output, num_output + len(prediction))
    if size < ANCHOR:
        expected = _expected(prediction, tail, num_tail, num_known, num_output)
        place, size = _nearest(prediction, tail, num_tail, num_known, expected, _NEAR)
        if size == 0:
            place = expected
    return (place, size) if place < len(prediction) else (-1, 0)


@compiled_exactly
def agreement(place: int, size: int, num_output: int) -> int:
    """Return the kind of agreement before a place: its length, AGREES_SO_FAR or BEGINS."""
    if size == place and place == num_output and place < LONGEST_AGREEMENT:
        return BEGINS if place < _FEW else AGREES_SO_FAR
    return size


@compiled_exactly
def _expected(prediction: Any, tail: Any, num_tail: int, num_known: int, num_output: int) -> int:
    """Return the place behind the newest anchor, as if as many words had been replaced; without one, the same place.

    The prediction is read once for all gaps: a token that is none of the newest ones costs one look at a set of bits.
    """
    most_gap = min(_LONGEST_GAP, num_known - 1)
    newest = 0
    for gap in range(1, most_gap + 1):
        newest |= 1 << (tail[num_tail - 1 - gap] & 63)
    best_gap, best_place, best = most_gap + 1, -1, 0
    for place in range(ANCHOR, len(prediction) + 1):
        token = prediction[place - 1]
        if not (newest >> (token & 63)) & 1:
            continue
        for gap in range(1, most_gap + 1):
            if gap > best_gap:
                break
            end = num_tail - gap
            if tail[end - 1] != token:
                continue
            limit = min(place, num_known - gap, LONGEST_AGREEMENT)
            length = 1
            while length < limit and prediction[place - 1 - length] == tail[end - 1 - length]:
                length += 1
            if length < ANCHOR:
                continue
            distance, best_distance = abs(place - (num_output - gap)), abs(best_place - (num_output - best_gap))
            if gap < best_gap or length > best or (length == best and distance < best_distance):
                best_gap, best_place, best = gap, place, length
    return best_place + best_gap if best else num_output


@compiled_exactly
def _nearest(prediction: Any, tail: Any, num_tail: int, num_known: int, expected: int, reach: int) -> tuple[int, int]:
    """Return the place behind the longest agreement, and its length; of equal ones, the nearest to `expected`.

    Only places at most `reach` tokens from it count; (-1, 0) if there is none.
    """
    best_place, best = -1, 0
    most = min(num_known, LONGEST_AGREEMENT)
    if most <= 0:
        return best_place, best
    last = tail[num_tail - 1]
    for place in range(max(1, expected - reach), min(len(prediction), expected + reach) + 1):
        if prediction[place - 1] != last:
            continue
        limit = min(place, most)
        length = 1
        while length < limit and prediction[place - 1 - length] == tail[num_tail - 1 - length]:
            length += 1
        if length > best or (length == best and abs(place - expected) < abs(best_place - expected)):
            best_place, best = place, length
    return best_place, best
