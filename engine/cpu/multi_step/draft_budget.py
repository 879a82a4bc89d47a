"""Number of draft tokens to verify in a step, and the acceptance statistics of each kind of draft token."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.failure import reported_as_compile_error
from engine.cpu.multi_step.draft_records import DRAFT_END, TRIALS


@compiled_exactly
def plan(
    acceptance_rates: Any,
    num_found: Any,
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
        num_found: int64 [rows]; number of draft tokens that each row has.
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
        if num_found[index]:
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
        is_last = counts[best] >= num_found[best]
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
    output: Any,
    num_output: Any,
    decay: float,
    trials: Any,
    acceptance_rates: Any,
) -> None:
    """Update the acceptance statistics from the output of each row, up to its first wrong draft token.

    `trials` are TRIALS records, one of each kind. Each trial multiplies both of its numbers by `decay`.
    """
    start = 0
    for index in range(len(num_output)):
        behind = start + num_output[index]
        num_drafts = ends[index].num_drafts
        record_row_acceptance(
            found_tokens[index], found_kinds[index], num_drafts, output[start:behind], decay, trials, acceptance_rates
        )
        start = behind


@compiled_exactly
def record_row_acceptance(
    tokens: Any, kinds: Any, num_drafts: int, output: Any, decay: float, trials: Any, acceptance_rates: Any
) -> None:
    """Update the acceptance statistics from the output of one row, up to its first wrong draft token."""
    for place in range(min(num_drafts, len(output))):
        is_right = tokens[place] == output[place]
        observe(trials, acceptance_rates, kinds[place], is_right, decay)
        if not is_right:
            break


@compiled_exactly
def observe(trials: Any, acceptance_rates: Any, kind: int, is_right: bool, decay: float) -> None:
    """Count one trial of a kind and update its acceptance rate."""
    found = trials[kind]
    found.accepted = decay * found.accepted + (1.0 if is_right else 0.0)
    found.tried = decay * found.tried + 1.0
    acceptance_rates[kind] = found.accepted / found.tried


@reported_as_compile_error("engine.cpu.multi_step.draft_budget")
def prepare() -> None:
    """Compile all kernels or load them from disk; the first time on a machine takes seconds. Raises CompileError."""
    tokens, counts, ends = np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.zeros(1, DRAFT_END)
    trials, acceptance_rates = np.ones(1, TRIALS), np.zeros(1)
    plan(np.zeros((1, 1)), counts, 1, 1.0, 1.0, 1.0, 1.0, counts)
    record_acceptance(tokens, tokens.copy(), ends, np.zeros(0, np.int64), counts, 1.0, trials, acceptance_rates)
    observe(trials, acceptance_rates, 0, True, 1.0)
