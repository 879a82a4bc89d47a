"""Check of speculation against the plain sampler: equal greedy text, equal text for a seed, equal distribution."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.config import CoreConfig
from engine.protocol import SamplingParams
from engine.sampling.noise import exponential_noise, stream_key
from engine.selftest.core_client import CoreClient, SequenceAnswer, running_core
from engine.selftest.distribution import ChiSquare, compare_distributions

_SEGMENT_TOKENS = 12
_GREEDY_TOKENS = 64
_DRAWN_TOKENS = 6
_GREEDY_PROMPTS = 24
_BATCH = 32
_MIN_P_VALUE = 1e-4
_TEMPERATURE = 0.9
_TIES = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""Largest lead of a token, in log probability, that rounding may reverse, by dtype."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison of answers with and without speculation."""

    num_tokens: int
    num_differences: int
    """Number of answers that differ at a token with a clear lead."""
    num_ties: int
    """Number of answers that differ at two tokens equal to within rounding.

    Several positions at once are rounded differently from one, as is every other batch.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Results of the check."""

    dtype: str
    greedy: Agreement
    seeded: Agreement
    chi_square: ChiSquare
    drafted_tokens: int
    accepted_tokens: int

    @property
    def is_lossless(self) -> bool:
        """True if speculation accepted tokens and changed nothing that rounding does not explain."""
        num_differences = self.greedy.num_differences + self.seeded.num_differences
        return not num_differences and self.chi_square.p_value >= _MIN_P_VALUE and self.accepted_tokens > 0


@dataclass(frozen=True, slots=True)
class _Answers:
    greedy: list[SequenceAnswer]
    seeded: list[SequenceAnswer]
    drawn: list[SequenceAnswer]
    prompt_lengths: list[int]
    dtype: str
    drafted_tokens: int
    accepted_tokens: int


def check_speculation(config: CoreConfig, *, num_samples: int, seed: int) -> Report:
    """Run the model without and with speculation, one after the other. Raises CoreFailed if it cannot run."""
    plain = _answers(config.changed(speculation="off"), num_samples, seed, first_seed=0)
    drafted = _answers(config, num_samples, seed, first_seed=num_samples)
    tolerance = _TIES[plain.dtype]
    return Report(
        dtype=plain.dtype,
        greedy=_agreement(drafted.greedy, plain.greedy, plain.prompt_lengths, 0.0, tolerance),
        seeded=_agreement(drafted.seeded, plain.seeded, plain.prompt_lengths, _TEMPERATURE, tolerance),
        chi_square=_distance(drafted.drawn, plain.drawn),
        drafted_tokens=drafted.drafted_tokens,
        accepted_tokens=drafted.accepted_tokens,
    )


def _answers(config: CoreConfig, num_samples: int, seed: int, first_seed: int) -> _Answers:
    """Return greedy and seeded answers to several prompts, and one prompt's answers for many seeds."""
    # With this clock all steps take equally long, so every draft seems to pay and is tested.
    ticks = itertools.count(0.0, 1e-3)
    with running_core(config, ticks.__next__) as core:
        rng = random.Random(seed)
        prompts = [_prompt(rng, core.ready.vocab_size) for _ in range(_GREEDY_PROMPTS)]
        greedy = _generate(core, prompts, [_params(_GREEDY_TOKENS, 0.0, 0)] * len(prompts))
        seeded = _generate(
            core, prompts, [_params(_GREEDY_TOKENS, _TEMPERATURE, number) for number in range(len(prompts))]
        )
        seeds = range(first_seed, first_seed + num_samples)
        drawn = _generate(
            core, prompts[:1] * num_samples, [_params(_DRAWN_TOKENS, 1.0, number, top_k=8) for number in seeds]
        )
        counters = core.counters
        lengths = [len(prompt) for prompt in prompts]
        return _Answers(
            greedy, seeded, drawn, lengths, core.ready.dtype, counters.drafted_tokens, counters.accepted_tokens
        )


def _prompt(rng: random.Random, vocab_size: int) -> list[int]:
    """Return a prompt of a repeated token segment, which gives n-gram lookup a match."""
    segment = [rng.randrange(vocab_size) for _ in range(_SEGMENT_TOKENS)]
    return segment + segment + segment[: rng.randint(2, _SEGMENT_TOKENS)]


def _params(max_tokens: int, temperature: float, seed: int, top_k: int = 0) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed, top_k=top_k, num_top_logprobs=0)


def _generate(core: CoreClient, prompts: Sequence[list[int]], params: Sequence[SamplingParams]) -> list[SequenceAnswer]:
    """Return answers in batches of growing size, because few and many sequences use different kernels."""
    answers: list[SequenceAnswer] = []
    size = 1
    while len(answers) < len(prompts):
        part = slice(len(answers), len(answers) + size)
        answers += core.generate(prompts[part], params[part])
        size = min(2 * size, _BATCH)
    return answers


def _agreement(
    ours: list[SequenceAnswer],
    theirs: list[SequenceAnswer],
    prompt_lengths: list[int],
    temperature: float,
    tolerance: float,
) -> Agreement:
    """Compare answers; answer n was sampled with seed n."""
    num_differences = num_ties = 0
    for seed, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left.token_ids == right.token_ids:
            continue
        shared = min(len(left.token_ids), len(right.token_ids))
        at = next((n for n in range(shared) if left.token_ids[n] != right.token_ids[n]), None)
        if at is None:
            num_differences += 1
            continue
        key = stream_key(seed, prompt_lengths[seed] + at)
        lead = _score(right, at, key, temperature) - _score(left, at, key, temperature)
        if abs(lead) <= tolerance:
            num_ties += 1
        else:
            num_differences += 1
    return Agreement(sum(len(answer.token_ids) for answer in theirs), num_differences, num_ties)


def _score(answer: SequenceAnswer, position: int, key: int, temperature: float) -> float:
    """Return the sampler's score of the chosen token."""
    logprob = answer.logprobs[position].logprob
    if not temperature:
        return logprob
    noise = exponential_noise([key], torch.tensor([[answer.token_ids[position]]]))
    return logprob / temperature - math.log(float(noise))


def _distance(left: Sequence[SequenceAnswer], right: Sequence[SequenceAnswer]) -> ChiSquare:
    """Compare position by position; tokens after the first may have been drafts."""
    total = ChiSquare(0.0, 0)
    for position in range(_DRAWN_TOKENS):
        samples = ([answer.token_ids[position] for answer in side] for side in (left, right))
        total += compare_distributions(*samples)
    return total


def default_draft_model(model_dir: Path) -> Path | None:
    """Return the small bundled model beside the large one; None for any other model."""
    small = model_dir.parent / model_dir.name.replace("large", "small")
    return small if small != model_dir and model_dir.name == "penstock-large" and small.is_dir() else None
