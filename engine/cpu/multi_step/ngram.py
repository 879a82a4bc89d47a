"""N-gram lookup of draft tokens: in the sequence's own text, and in a memory of earlier answers.

It is compiled, because a small model's step takes less than a millisecond. Python loops would add a tenth to that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.intrinsics import pointer_to_integers
from engine.cpu.multi_step.draft_budget import plan

LONGEST = 16
"""Maximum length of a match."""
SIZES = (5, 3, 2, 1)
"""Lengths of the n-grams of answers in the memory; the longest match counts."""
LONGEST_STREAK = 4
STREAKS = LONGEST_STREAK + 1
WAYS = 4
"""Number of places in the memory where an n-gram may be stored."""
# First index of each source in the table of kinds: by text (0), by memory and by both.
BY_MEMORY = LONGEST + 1
BY_BOTH = BY_MEMORY + (SIZES[0] + 1) * STREAKS
NUM_LISTED = BY_BOTH + (LONGEST + 1) * STREAKS

_REACH = 1 << 15
"""Maximum distance, in tokens, that a text is searched backwards."""
_ODD = -7046029254386353131
"""2^64 divided by the golden ratio, as a signed number; multiplication by it spreads neighbours far apart."""


@compiled_exactly
def look_ahead(
    rows: Any,
    numbers: Any,
    lists: Any,
    memory_keys: Any,
    memory_values: Any,
    acceptance_rates: Any,
    kinds: Any,
    ahead_tokens: Any,
    ahead_kinds: Any,
    found_tokens: Any,
    found_kinds: Any,
    ends: Any,
) -> None:
    """Find draft tokens for each row and write them into `found_tokens` and `found_kinds` [rows, most].

    Each draft token continues those before it.

    Args:
        rows: int64 [rows, 6]: address of a text, its length, its salt, number of draft tokens it already has, number of
            tokens that would end it, maximum number of new draft tokens.
        numbers: float64 [rows, 3]: probability that the present draft tokens are accepted, the least probability of all
            of them together, the least of the next one alone.
        lists: int64: the present draft tokens and the tokens that would end the text, row after row.
        memory_keys: int64 keys of the n-gram memory.
        memory_values: int64 values of the n-gram memory.
        acceptance_rates: float64 [kinds]: acceptance rate of each kind.
        kinds: int64 [NUM_LISTED]: kinds of lookup.
        ahead_tokens: int64 [rows, heads]: tokens that prediction heads predict, in order; -1 where there is none.
        ahead_kinds: int64 [rows, heads]: kinds of those tokens.
        found_tokens: Receives the new draft tokens.
        found_kinds: Receives their kinds.
        ends: int64 [rows, 2]: receives the number of new draft tokens, and 1 if a token that ends the text follows.
    """
    tail = np.empty(LONGEST + found_tokens.shape[1], np.int64)
    start = 0
    for index in range(len(rows)):
        text = carray(pointer_to_integers(rows[index, 0]), rows[index, 1])
        num_guesses, num_stops = rows[index, 3], rows[index, 4]
        num_newest = min(len(text), LONGEST)
        num_tail = num_newest + num_guesses
        tail[:num_newest] = text[len(text) - num_newest :]
        tail[num_newest:num_tail] = lists[start : start + num_guesses]
        stops = lists[start + num_guesses : start + num_guesses + num_stops]
        start += num_guesses + num_stops
        acceptance_rate, salt = numbers[index, 0], rows[index, 2]
        place, num_matched, count = -1, 0, 0
        ends[index, 1] = 0
        while count < rows[index, 5] and acceptance_rate >= numbers[index, 1]:
            if place < 0:
                place, num_matched = find(text, tail, num_tail)
            said, size = recall(memory_keys, memory_values, salt, tail, num_tail)
            token, kind = _likelier(text, place, num_matched, said, size, acceptance_rates, kinds)
            depth = num_guesses + count
            if depth < ahead_tokens.shape[1] and ahead_tokens[index, depth] >= 0:
                of_head = ahead_kinds[index, depth]
                if token < 0 or acceptance_rates[of_head] > acceptance_rates[kind]:
                    token, kind = ahead_tokens[index, depth], of_head
            if token < 0 or acceptance_rates[kind] < numbers[index, 2]:
                break
            if _has(stops, token):
                ends[index, 1] = 1
                break
            found_tokens[index, count], found_kinds[index, count] = token, kind
            tail[num_tail] = token
            num_tail += 1
            count += 1
            acceptance_rate *= acceptance_rates[kind]
            # The match continues as long as its tokens are the ones chosen.
            if place >= 0 and text[place] == token and place + 1 < len(text):
                place, num_matched = place + 1, min(num_matched + 1, LONGEST)
            else:
                place = -1
        ends[index, 0] = count


@compiled_exactly
def choose(
    rows: Any,
    numbers: Any,
    lists: Any,
    memory_keys: Any,
    memory_values: Any,
    acceptance_rates: Any,
    kinds: Any,
    ahead_tokens: Any,
    ahead_kinds: Any,
    found_tokens: Any,
    found_kinds: Any,
    ends: Any,
    costs: Any,
    counts: Any,
) -> float:
    """Find draft tokens by `look_ahead`, choose their number by `plan`, and return the gain.

    `costs` float64 [4] are the plain seconds, the fixed seconds and the seconds for each draft token, then the least
    gain.
    """
    look_ahead(
        rows, numbers, lists, memory_keys, memory_values, acceptance_rates, kinds, ahead_tokens, ahead_kinds,
        found_tokens, found_kinds, ends,
    )  # fmt: skip
    likely = np.empty(found_kinds.shape)
    for index in range(len(rows)):
        for place in range(ends[index, 0]):
            likely[index, place] = acceptance_rates[found_kinds[index, place]]
    gain: float = plan(likely, ends[:, 0], len(rows), costs[0], costs[1], costs[2], costs[3], counts)
    return gain


@compiled_exactly
def learn(address: int, num_text: int, begin: int, salt: int, memory_keys: Any, memory_values: Any) -> None:
    """Store the n-grams of a text from position `begin` on, each with the token that follows it."""
    text = carray(pointer_to_integers(address), num_text)
    for place in range(begin, num_text):
        for size in SIZES:
            if size <= place:
                _note(memory_keys, memory_values, _key(salt, text, place, size), text[place])


@compiled_exactly
def _likelier(
    text: Any, place: int, num_matched: int, said: int, size: int, acceptance_rates: Any, kinds: Any
) -> tuple[int, int]:
    """Return the more likely one of the text's and the memory's next token, and its kind; (-1, 0) without either."""
    if said < 0:
        return (text[place], kinds[num_matched]) if place >= 0 else (-1, 0)
    token, streak = said // STREAKS, said % STREAKS
    if place >= 0 and text[place] == token:
        return token, kinds[BY_BOTH + STREAKS * num_matched + streak]
    kind = kinds[BY_MEMORY + STREAKS * size + streak]
    if place >= 0 and acceptance_rates[kinds[num_matched]] >= acceptance_rates[kind]:
        return text[place], kinds[num_matched]
    return token, kind


@compiled_exactly
def find(text: Any, tail: Any, num_tail: int) -> tuple[int, int]:
    """Return the position behind the longest earlier match of the tail's newest tokens, and the length of the match.

    Of several longest matches, the latest counts. The result is (-1, 0) if there is none.
    """
    best_place, best = -1, 0
    last = tail[num_tail - 1]
    most = min(num_tail, LONGEST)
    for place in range(len(text) - 1, max(0, len(text) - _REACH), -1):
        if text[place - 1] != last:
            continue
        limit = min(place, most)
        length = 1
        while length < limit and text[place - 1 - length] == tail[num_tail - 1 - length]:
            length += 1
        if length > best:
            best_place, best = place, length
            if best == most:
                break
    return best_place, best


@compiled_exactly
def recall(memory_keys: Any, memory_values: Any, salt: int, tail: Any, num_tail: int) -> tuple[int, int]:
    """Return the memory's value for the longest stored n-gram that ends the tail, and its length; (-1, 0) without one.

    The value combines a token and its streak, the number of times in succession it followed: token * STREAKS + streak.
    """
    for size in SIZES:
        if size <= num_tail:
            key = _key(salt, tail, num_tail, size)
            first = _first_place(memory_keys, key)
            for place in range(first, first + WAYS):
                if memory_keys[place] == key:
                    return memory_values[place], size
    return -1, 0


@compiled_exactly
def _note(memory_keys: Any, memory_values: Any, key: int, token: int) -> None:
    """Store an n-gram first among its places; of the others there, the one stored longest ago is dropped."""
    first = _first_place(memory_keys, key)
    last = first
    while last < first + WAYS - 1 and memory_keys[last] != key:
        last += 1
    value = token * STREAKS + 1
    if memory_keys[last] == key:
        known = memory_values[last]
        value = token * STREAKS
        if known // STREAKS == token:
            value += min(known % STREAKS + 1, LONGEST_STREAK)
    for place in range(last, first, -1):
        memory_keys[place], memory_values[place] = memory_keys[place - 1], memory_values[place - 1]
    memory_keys[first], memory_values[first] = key, value


@compiled_exactly
def _key(salt: int, tokens: Any, end: int, size: int) -> int:
    """Return a hash of the salt and the `size` tokens before `end`; never 0, which marks an empty place."""
    mixed = (salt + size) * _ODD
    for place in range(end - size, end):
        mixed = (mixed ^ (mixed >> 29) ^ tokens[place]) * _ODD
    return mixed ^ (mixed >> 32) | 1


@compiled_exactly
def _first_place(memory_keys: Any, key: int) -> int:
    return ((key >> 7) & (len(memory_keys) // WAYS - 1)) * WAYS


@compiled_exactly
def _has(tokens: Any, token: int) -> bool:
    for one in tokens:  # noqa: SIM110 - a generator cannot be compiled
        if one == token:
            return True
    return False


def prepare() -> None:
    """Compile all kernels or load them from disk; the first time on a machine takes seconds."""
    memory = np.zeros(WAYS, np.int64), np.zeros(WAYS, np.int64)
    acceptance_rates, kinds, ends = np.zeros(1), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    tokens, of_kinds = np.zeros((2, 1, 1), np.int64)
    nothing = np.zeros(0, np.int64)
    rows, numbers, counts = np.zeros((1, 6), np.int64), np.zeros((1, 3)), np.zeros(1, np.int64)
    arrays = tokens, of_kinds, tokens, of_kinds, ends
    look_ahead(rows, numbers, nothing, *memory, acceptance_rates, kinds, *arrays)
    choose(rows, numbers, nothing, *memory, acceptance_rates, kinds, *arrays, np.ones(4), counts)
    learn(0, 0, 0, 0, *memory)
