"""Number of draft tokens to verify in a step, and the acceptance statistics of each kind of draft token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.intrinsics import pointer_to_integers


@compiled_exactly
def plan(
    acceptance_rates: Any,
    num_guesses: Any,
    num_rows: int,
    plain_s: float,
    fixed_s: float,
    each_s: float,
    least_gain: float,
    counts: Any,
) -> float:
    """Write into `counts` how many draft tokens of each row to verify, and return the gain in throughput.

    The gain is the expected tokens per second as a multiple of those without draft tokens. If it is below `least_gain`,
    all counts are 0 and the gain is 1.

    Args:
        acceptance_rates: float64 [rows, most]; probability that each draft token is accepted after those before it.
        num_guesses: int64 [rows]; number of draft tokens that each row has.
        num_rows: Number of rows in the step.
        plain_s: Seconds of a step that computes one token for each row.
        fixed_s: Seconds added by having any draft tokens.
        each_s: Seconds added by each draft token.
        least_gain: Smallest gain for which draft tokens are verified.
        counts: int64 [rows]; receives the number of draft tokens to verify.
    """
    counts[:] = 0
    probabilities = np.zeros(len(counts))
    for index in range(len(counts)):
        if num_guesses[index]:
            probabilities[index] = acceptance_rates[index, 0]
    tokens, seconds, num_drafts = float(num_rows), plain_s + fixed_s, 0
    while True:
        # A row's probability falls with each draft token, so the best next one over all rows is optimal.
        best = np.argmax(probabilities)
        if probabilities[best] <= 0.0 or (tokens + probabilities[best]) / (seconds + each_s) <= tokens / seconds:
            break
        tokens += probabilities[best]
        seconds += each_s
        num_drafts += 1
        counts[best] += 1
        is_last = counts[best] >= num_guesses[best]
        probabilities[best] = 0.0 if is_last else probabilities[best] * acceptance_rates[best, counts[best]]
    gain = tokens / num_rows * plain_s / seconds
    if num_drafts and gain >= least_gain:
        return gain
    counts[:] = 0
    return 1.0


@compiled_exactly
def record_acceptance(
    found_tokens: Any,
    found_kinds: Any,
    ends: Any,
    said: Any,
    num_said: Any,
    decay: float,
    record: Any,
    acceptance_rates: Any,
) -> None:
    """Update the acceptance statistics from the output of each row, up to its first wrong draft token.

    `record` [2, kinds] holds the decayed counts of accepted and of tried draft tokens. Each trial multiplies both by
    `decay`.
    """
    start = 0
    for index in range(len(num_said)):
        behind = start + num_said[index]
        record_row_acceptance(
            found_tokens[index], found_kinds[index], ends[index, 0], said[start:behind], decay, record, acceptance_rates
        )
        start = behind


@compiled_exactly
def record_row_acceptance(
    tokens: Any, kinds: Any, num_guesses: int, said: Any, decay: float, record: Any, acceptance_rates: Any
) -> None:
    """Update the acceptance statistics from the output of one row, up to its first wrong draft token."""
    for place in range(min(num_guesses, len(said))):
        is_right = tokens[place] == said[place]
        observe(record, acceptance_rates, kinds[place], is_right, decay)
        if not is_right:
            break


@compiled_exactly
def observe(record: Any, acceptance_rates: Any, kind: int, is_right: bool, decay: float) -> None:
    """Count one trial of a kind and update its acceptance rate."""
    record[0, kind] = decay * record[0, kind] + (1.0 if is_right else 0.0)
    record[1, kind] = decay * record[1, kind] + 1.0
    acceptance_rates[kind] = record[0, kind] / record[1, kind]


@compiled_exactly
def mean_weight(address: int, num_tokens: int, weights: Any) -> float:
    """Return the mean weight of `num_tokens` int64 tokens at an address.

    The size of `weights` (float64) is a power of two. Tokens that are equal modulo that size share a weight.
    """
    total = 0.0
    for token in carray(pointer_to_integers(address), num_tokens):
        total += weights[token & (len(weights) - 1)]
    return total / num_tokens


@compiled_exactly
def move_weights(address: int, num_tokens: int, weights: Any, wanted: float, rate: float) -> None:
    """Move the weights of the tokens so that their mean comes closer to `wanted`."""
    step = rate * (wanted - mean_weight(address, num_tokens, weights))
    for token in carray(pointer_to_integers(address), num_tokens):
        weights[token & (len(weights) - 1)] += step


def prepare() -> None:
    """Compile all kernels or load them from disk; the first time on a machine takes seconds."""
    told, counts, ends = np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    plan(np.zeros((1, 1)), counts, 1, 1.0, 1.0, 1.0, 1.0, counts)
    record_acceptance(told, told.copy(), ends, np.zeros(0, np.int64), counts, 1.0, np.ones((2, 1)), np.zeros(1))
    move_weights(counts.ctypes.data, 1, np.zeros(1), mean_weight(counts.ctypes.data, 1, np.zeros(1)), 1.0)
