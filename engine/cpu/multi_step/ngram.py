"""Lookup of draft tokens: in the sequence's own text, in a memory of earlier answers, and in a predicted answer.

It is compiled, because a small model's step takes less than a millisecond. Python loops would add a tenth to that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.failure import reported_as_compile_error
from engine.cpu.jit.intrinsics import pointer_to
from engine.cpu.jit.layout import STEP_COSTS
from engine.cpu.multi_step.draft_budget import plan
from engine.cpu.multi_step.draft_records import DRAFT_END, DRAFT_ROW
from engine.cpu.multi_step.prediction import LONGEST_AGREEMENT, NUM_AGREEMENTS, agreement, align

LONGEST = 16
"""Maximum length of a match."""
SIZES = (5, 3, 2, 1)
"""Lengths of the n-grams of answers in the memory; the longest match counts."""
LONGEST_STREAK = 4
STREAKS = LONGEST_STREAK + 1
WAYS = 4
"""Number of places in the memory where an n-gram may be stored."""
# First index of each source in the table of kinds: by text (0), by memory, by both, and by prediction of a greedy
# answer and of one that is drawn.
BY_MEMORY = LONGEST + 1
BY_BOTH = BY_MEMORY + (SIZES[0] + 1) * STREAKS
BY_PREDICTION = BY_BOTH + (LONGEST + 1) * STREAKS
BY_DRAWN_PREDICTION = BY_PREDICTION + NUM_AGREEMENTS
NUM_LISTED = BY_DRAWN_PREDICTION + NUM_AGREEMENTS

_REACH = 1 << 15
"""Maximum distance, in tokens, that a text is searched backwards."""
_ODD = -7046029254386353131
"""2^64 divided by the golden ratio, as a signed number; multiplication by it spreads neighbours far apart."""


@compiled_exactly
def find_drafts(
    rows: Any,
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
        rows: DRAFT_ROW records of the texts.
        lists: int64: the present draft tokens and the tokens that would end the text, row after row.
        memory_keys: int64 keys of the n-gram memory.
        memory_values: int64 values of the n-gram memory.
        acceptance_rates: float64 [kinds]: acceptance rate of each kind.
        kinds: int64 [NUM_LISTED]: kinds of lookup.
        ahead_tokens: int64 [rows, heads]: tokens that prediction heads predict, in order; -1 where there is none.
        ahead_kinds: int64 [rows, heads]: kinds of those tokens.
        found_tokens: Receives the new draft tokens.
        found_kinds: Receives their kinds.
        ends: DRAFT_END records that receive the number of new draft tokens of each row.
    """
    tail = np.empty(LONGEST + found_tokens.shape[1], np.int64)
    start = 0
    for index in range(len(rows)):
        row, end = rows[index], ends[index]
        text = carray(pointer_to(row.text, np.int64), row.length)
        num_drafts, num_stops = row.num_drafts, row.num_stops
        num_newest = min(len(text), LONGEST)
        num_tail = num_newest + num_drafts
        tail[:num_newest] = text[len(text) - num_newest :]
        tail[num_newest:num_tail] = lists[start : start + num_drafts]
        prediction = carray(pointer_to(row.prediction, np.int64), row.num_predicted)
        stops = lists[start + num_drafts : start + num_drafts + num_stops]
        start += num_drafts + num_stops
        _continue(
            row, end, text, prediction, stops, tail, num_tail, memory_keys, memory_values, acceptance_rates, kinds,
            ahead_tokens[index, num_drafts:], ahead_kinds[index, num_drafts:],
            found_tokens[index], found_kinds[index],
        )  # fmt: skip


@compiled_exactly
def _continue(
    row: Any,
    end: Any,
    text: Any,
    prediction: Any,
    stops: Any,
    tail: Any,
    num_tail: int,
    memory_keys: Any,
    memory_values: Any,
    acceptance_rates: Any,
    kinds: Any,
    ahead_tokens: Any,
    ahead_kinds: Any,
    found_tokens: Any,
    found_kinds: Any,
) -> None:
    """Find draft tokens for one row, behind the first `num_tail` tokens of the tail, which has room for more."""
    acceptance_rate = row.accepted_probability
    place, num_matched, count = -1, 0, 0
    ahead, num_agreed = -1, 0
    num_output = row.length - row.num_prompt + row.num_drafts
    end.is_over = 0
    while count < row.max_drafts and acceptance_rate >= row.least_probability:
        if place < 0:
            place, num_matched = find(text, tail, num_tail)
        recalled, size = recall(memory_keys, memory_values, row.salt, tail, num_tail)
        token, kind = _likelier(text, place, num_matched, recalled, size, acceptance_rates, kinds)
        if len(prediction):
            if ahead < 0:
                ahead, num_agreed = align(prediction, tail, num_tail, num_output)
            if ahead >= 0:
                of_prediction = kinds[row.first_agreement + agreement(ahead, num_agreed, num_output)]
                if token < 0 or acceptance_rates[of_prediction] > acceptance_rates[kind]:
                    token, kind = prediction[ahead], of_prediction
        if count < len(ahead_tokens) and ahead_tokens[count] >= 0:
            of_head = ahead_kinds[count]
            if token < 0 or acceptance_rates[of_head] > acceptance_rates[kind]:
                token, kind = ahead_tokens[count], of_head
        if token < 0 or acceptance_rates[kind] < row.least_next_probability:
            break
        if _has(stops, token):
            end.is_over = 1
            break
        found_tokens[count], found_kinds[count] = token, kind
        tail[num_tail] = token
        num_tail += 1
        num_output += 1
        count += 1
        acceptance_rate *= acceptance_rates[kind]
        # The match continues as long as its tokens are the ones chosen.
        if place >= 0 and text[place] == token and place + 1 < len(text):
            place, num_matched = place + 1, min(num_matched + 1, LONGEST)
        else:
            place = -1
        if ahead >= 0 and prediction[ahead] == token and ahead + 1 < len(prediction):
            ahead, num_agreed = ahead + 1, min(num_agreed + 1, LONGEST_AGREEMENT)
        else:
            ahead = -1
    end.num_drafts = count


@compiled_exactly
def choose(
    rows: Any,
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
    """Find draft tokens by `find_drafts`, choose their number by `plan`, and return the gain.

    `costs` is a STEP_COSTS record (`engine.cpu.jit.layout`).
    """
    find_drafts(
        rows, lists, memory_keys, memory_values, acceptance_rates, kinds, ahead_tokens, ahead_kinds,
        found_tokens, found_kinds, ends,
    )  # fmt: skip
    likely = np.empty(found_kinds.shape)
    for index in range(len(rows)):
        for place in range(ends[index].num_drafts):
            likely[index, place] = acceptance_rates[found_kinds[index, place]]
    gain: float = plan(
        likely, ends["num_drafts"], len(rows), costs.plain_s, costs.fixed_s, costs.each_s, costs.least_gain, counts
    )
    return gain


@compiled_exactly
def learn(address: int, num_text: int, begin: int, salt: int, memory_keys: Any, memory_values: Any) -> None:
    """Store the n-grams of a text from position `begin` on, each with the token that follows it."""
    text = carray(pointer_to(address, np.int64), num_text)
    for place in range(begin, num_text):
        for size in SIZES:
            if size <= place:
                _note(memory_keys, memory_values, _key(salt, text, place, size), text[place])


@compiled_exactly
def _likelier(
    text: Any, place: int, num_matched: int, recalled: int, size: int, acceptance_rates: Any, kinds: Any
) -> tuple[int, int]:
    """Return the more likely one of the text's and the memory's next token, and its kind; (-1, 0) without either."""
    if recalled < 0:
        return (text[place], kinds[num_matched]) if place >= 0 else (-1, 0)
    token, streak = recalled // STREAKS, recalled % STREAKS
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


@reported_as_compile_error("engine.cpu.multi_step.ngram")
def prepare() -> None:
    """Compile all kernels or load them from disk; the first time on a machine takes seconds. Raises CompileError."""
    memory = np.zeros(WAYS, np.int64), np.zeros(WAYS, np.int64)
    acceptance_rates, kinds, counts = np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
    tokens, of_kinds = np.zeros((2, 1, 1), np.int64)
    rows, lists = np.zeros(1, DRAFT_ROW), np.zeros(0, np.int64)
    arrays = tokens, of_kinds, tokens, of_kinds, np.zeros(1, DRAFT_END)
    find_drafts(rows, lists, *memory, acceptance_rates, kinds, *arrays)
    choose(rows, lists, *memory, acceptance_rates, kinds, *arrays, np.ones(1, STEP_COSTS)[0], counts)
    learn(0, 0, 0, 0, *memory)
