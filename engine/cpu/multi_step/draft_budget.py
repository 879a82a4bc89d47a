"""What is decided in every step about guesses: how many are worth verifying, and how often each kind was right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.intrinsics import pointer_to_integers


@compiled_exactly
def plan(
    chances: Any,
    num_guesses: Any,
    num_rows: int,
    plain_s: float,
    fixed_s: float,
    each_s: float,
    least_gain: float,
    counts: Any,
) -> float:
    """How many guesses of each row to verify, into `counts`, and how many times the tokens per second that gives; 1 and
    none below `least_gain`.

    A step takes `plain_s` for a token a row, `fixed_s` more with drafts, `each_s` more for each of them. `chances`
    [rows, most]: of every guess that it is right, given those before it.
    """
    counts[:] = 0
    probabilities = np.zeros(len(counts))
    for index in range(len(counts)):
        if num_guesses[index]:
            probabilities[index] = chances[index, 0]
    tokens, seconds, num_drafts = float(num_rows), plain_s + fixed_s, 0
    while True:
        # A row's hopes fall with each guess, so the best next one over all rows is the best there is.
        best = np.argmax(probabilities)
        if probabilities[best] <= 0.0 or (tokens + probabilities[best]) / (seconds + each_s) <= tokens / seconds:
            break
        tokens += probabilities[best]
        seconds += each_s
        num_drafts += 1
        counts[best] += 1
        is_last = counts[best] >= num_guesses[best]
        probabilities[best] = 0.0 if is_last else probabilities[best] * chances[best, counts[best]]
    gain = tokens / num_rows * plain_s / seconds
    if num_drafts and gain >= least_gain:
        return gain
    counts[:] = 0
    return 1.0


@compiled_exactly
def judge(
    found_tokens: Any, found_kinds: Any, ends: Any, said: Any, num_said: Any, decay: float, record: Any, chances: Any
) -> None:
    """Guesses up to the first wrong one were put to the test by what each row said; `record` [2, kinds] holds how many
    were right and how many were tried, both fading with each trial.
    """
    start = 0
    for index in range(len(num_said)):
        behind = start + num_said[index]
        judge_row(found_tokens[index], found_kinds[index], ends[index, 0], said[start:behind], decay, record, chances)
        start = behind


@compiled_exactly
def judge_row(tokens: Any, kinds: Any, num_guesses: int, said: Any, decay: float, record: Any, chances: Any) -> None:
    """The same of one row."""
    for place in range(min(num_guesses, len(said))):
        is_right = tokens[place] == said[place]
        observe(record, chances, kinds[place], is_right, decay)
        if not is_right:
            break


@compiled_exactly
def observe(record: Any, chances: Any, kind: int, is_right: bool, decay: float) -> None:
    """One trial of a kind."""
    record[0, kind] = decay * record[0, kind] + (1.0 if is_right else 0.0)
    record[1, kind] = decay * record[1, kind] + 1.0
    chances[kind] = record[0, kind] / record[1, kind]


@compiled_exactly
def mean_weight(address: int, num_tokens: int, weights: Any) -> float:
    """Of so many tokens, int64 at an address; `weights` float64 [a power of two]: more tokens than that share some."""
    total = 0.0
    for token in carray(pointer_to_integers(address), num_tokens):
        total += weights[token & (len(weights) - 1)]
    return total / num_tokens


@compiled_exactly
def move_weights(address: int, num_tokens: int, weights: Any, wanted: float, rate: float) -> None:
    """Move tokens' weights so that their mean is nearer to what is wanted."""
    step = rate * (wanted - mean_weight(address, num_tokens, weights))
    for token in carray(pointer_to_integers(address), num_tokens):
        weights[token & (len(weights) - 1)] += step


def prepare() -> None:
    """Have everything compiled, or read from disk; takes seconds the first time on a machine."""
    told, counts, ends = np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    plan(np.zeros((1, 1)), counts, 1, 1.0, 1.0, 1.0, 1.0, counts)
    judge(told, told.copy(), ends, np.zeros(0, np.int64), counts, 1.0, np.ones((2, 1)), np.zeros(1))
    move_weights(counts.ctypes.data, 1, np.zeros(1), mean_weight(counts.ctypes.data, 1, np.zeros(1)), 1.0)
