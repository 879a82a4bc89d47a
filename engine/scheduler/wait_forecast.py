"""Forecast of a new request's wait for its first chunk, lane by lane. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.protocol import Lane
from engine.scheduler.arrivals import ArrivalRate
from engine.scheduler.lanes import LANES, WEIGHTS

_MAX_ITERATIONS = 8
_CONVERGED_RATIO = 1.02
_NUM_COUNTED_ENDS = 2
"""Number of ends in each part of the batch that are counted one by one; beyond them, their mean rate counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Waiting and running work of one lane."""

    num_running: int
    num_waiting: int
    num_prompt_tokens: int
    """Prompt tokens still to be computed, waiting or running, without those the prefix cache is expected to hold."""
    num_started_tokens: int
    """Uncomputed prompt tokens of running sequences."""
    num_output_tokens: int
    """Tokens that are expected to be generated, waiting or running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRate:
    """Rate at which the core works off the backlogs."""

    decode_step_s: float
    """Duration of a step without prompts."""
    num_step_tokens: int
    """Prompt tokens a step can hold beside the sequences that decode; at least 1."""
    num_patient_tokens: int
    """Prompt tokens that are not urgent and fit into a step beside the sequences that decode."""
    prompt_token_s: float
    """Seconds that each prompt token adds to the step."""

    @property
    def full_step_s(self) -> float:
        """Duration of a step with all the prompt tokens it can hold."""
        return self.decode_step_s + self.num_step_tokens * self.prompt_token_s

    def prefill_s(self, num_tokens: int) -> float:
        """Return the seconds that a prompt of `num_tokens` tokens takes with all of the steps' room."""
        return math.ceil(num_tokens / self.num_step_tokens) * self.decode_step_s + num_tokens * self.prompt_token_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceReleases:
    """Times at which running sequences end, counted in steps."""

    num_free: int
    end_steps: Sequence[float]
    """Number of steps until each of the next sequences ends, ascending."""
    steps_per_end: float
    """Average number of steps from one end to the next beyond `end_steps`; 0 when nothing runs."""

    def steps_until_free(self, num_before: int) -> float:
        """Return the steps until the batch has room for a sequence behind `num_before` others."""
        num_ends = num_before + 1 - self.num_free
        if num_ends <= 0 or not self.end_steps:
            return 0.0
        last = min(num_ends, len(self.end_steps))
        return self.end_steps[last - 1] + (num_ends - last) * self.steps_per_end


def sequence_ends(remaining: Sequence[int], mean_tokens: float, num_ends: int) -> tuple[list[float], float]:
    """Return the steps from now until each of the first ends, and the steps from end to end beyond them."""
    ends = [float(num_tokens) for num_tokens in remaining]
    heapq.heapify(ends)
    found = [
        heapq.heapreplace(ends, ends[0] + mean_tokens) for _ in range(min(num_ends, _NUM_COUNTED_ENDS * len(ends)))
    ]
    return found, mean_tokens / len(ends) if ends else 0.0


def forecast_wait_s(
    lane: Lane,
    backlogs: Mapping[Lane, Backlog],
    rates: Mapping[Lane, ArrivalRate],
    pace: ServiceRate,
    releases: SequenceReleases,
) -> float:
    """Return the seconds until a short request of this lane gets its first chunk."""
    if not any(backlog.num_running or backlog.num_waiting for backlog in backlogs.values()):
        return 0.0
    wait_s = _wait_s(lane, backlogs, rates, pace, releases, 0.0)
    if wait_s <= 2.0 * pace.full_step_s:
        return wait_s
    for _ in range(_MAX_ITERATIONS):
        before_s, wait_s = wait_s, _wait_s(lane, backlogs, rates, pace, releases, wait_s)
        if wait_s <= _CONVERGED_RATIO * before_s:
            break
    return wait_s


def _wait_s(
    lane: Lane,
    backlogs: Mapping[Lane, Backlog],
    rates: Mapping[Lane, ArrivalRate],
    pace: ServiceRate,
    releases: SequenceReleases,
    meanwhile_s: float,
) -> float:
    """Return the wait if further requests arrive for this long meanwhile."""
    own_tokens, own_turns = float(backlogs[lane].num_prompt_tokens), float(backlogs[lane].num_waiting + 1)
    num_tokens, num_before = own_tokens, own_turns - 1.0
    for other in LANES:
        if other != lane:
            backlog, rate, ratio = backlogs[other], rates[other], WEIGHTS[other] / WEIGHTS[lane]
            others_tokens = backlog.num_prompt_tokens + rate.prompt_tokens_per_s * meanwhile_s
            num_tokens += min(others_tokens, ratio * own_tokens)
            num_before += min(backlog.num_waiting + rate.sequences_per_s * meanwhile_s, ratio * own_turns)
    num_steps = max(1, math.ceil(num_tokens / pace.num_step_tokens), releases.steps_until_free(round(num_before)))
    # Steps that pass while the batch is full have room for its prompts, and are the longer for them.
    num_started = sum(backlog.num_started_tokens for backlog in backlogs.values())
    num_tokens = max(num_tokens, min(num_started, num_steps * pace.num_patient_tokens))
    return num_steps * pace.decode_step_s + num_tokens * pace.prompt_token_s
