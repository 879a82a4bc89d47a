"""Made-up batches: the largest step, to measure its memory, and typical ones, to touch every path before traffic."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from statistics import median

from engine.forecast.step_cost import StepCosts
from engine.forecast.step_time import StepTimeModel
from engine.protocol import SamplingParams
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import INT64, Sequence, SequenceState, StageClock
from engine.step.step_output import StepOutput

MAX_CONTEXT = 1024
"""Longest context of a typical step, in tokens."""
_VERIFICATION_REPEATS = 12
"""Number of repeats of each variant; the first touches every path, and the machine may be busy in some."""

Run = Callable[[SchedulerOutput], StepOutput]

# Exercises every part of the sampler whose memory grows with the vocabulary.
_PARAMS = SamplingParams(
    max_tokens=1,
    temperature=0.7,
    top_p=0.9,
    top_k=50,
    seed=1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    repetition_penalty=1.1,
    num_top_logprobs=5,
)
PLAIN_PARAMS = SamplingParams(max_tokens=1, temperature=0.0)


def made_up_batch(
    num_seqs: int,
    num_tokens: int,
    context_len: int,
    *,
    num_blocks: int,
    block_size: int,
    params: SamplingParams = _PARAMS,
) -> SchedulerOutput:
    """Return a batch of sequences with `num_tokens` tokens each at the end of `context_len`.

    The sequences use blocks [0, num_blocks) and share them if there are too few.
    """
    chunks = []
    blocks_per_seq = -(-context_len // block_size)
    for index in range(num_seqs):
        first = index * blocks_per_seq % max(1, num_blocks - blocks_per_seq + 1)
        seq = Sequence(
            seq_id=index,
            arrival_index=index,
            token_ids=array(INT64, [1]) * context_len,
            num_prompt_tokens=context_len,
            params=params,
            lane="interactive",
            priority=0,
            cache_salt=b"",
            deadline_at=None,
            stages=StageClock(0.0),
            state=SequenceState.RUNNING,
            num_computed_tokens=context_len - num_tokens,
            block_table=array(INT64, range(first, first + blocks_per_seq)),
        )
        chunks.append(ScheduledChunk(seq, context_len - num_tokens, num_tokens, samples=True))
    return SchedulerOutput(chunks)


def typical_batches(
    *, max_num_seqs: int, max_tokens: int, max_context: int, num_blocks: int, block_size: int
) -> Iterator[SchedulerOutput]:
    """Return prompts of several lengths and decode steps of 1, 2, 4 … sequences, alternating.

    Each number of sequences has a short and a long context. A step-time model that has seen only decode steps takes its
    first long prompts for outliers.
    """
    shapes = zip_longest(_prompts(max_tokens, max_context), _decode_steps(max_num_seqs, max_context))
    for shape in chain.from_iterable(shapes):
        if shape is not None:
            num_seqs, num_tokens, context_len = shape
            yield made_up_batch(num_seqs, num_tokens, context_len, num_blocks=num_blocks, block_size=block_size)


_Shape = tuple[int, int, int]
"""Sequences, tokens of each, context of each."""


def _prompts(max_tokens: int, max_context: int) -> Iterator[_Shape]:
    lengths = sorted({min(num_tokens, max_tokens, max_context) for num_tokens in (16, 64, 256, 1024)})
    for num_tokens in lengths:
        yield 1, num_tokens, num_tokens
    for num_tokens in lengths[1:3]:
        yield 1, num_tokens, min(MAX_CONTEXT, max_context)


def _decode_steps(max_num_seqs: int, max_context: int) -> Iterator[_Shape]:
    for context_len in sorted({min(64, max_context), min(MAX_CONTEXT, max_context)}):
        num_seqs = 1
        while num_seqs <= max_num_seqs:
            yield num_seqs, 1, context_len
            num_seqs *= 2


def warm_up(
    run: Run,
    batches: Iterator[SchedulerOutput],
    step_time: StepTimeModel,
    clock: Callable[[], float],
    *,
    limit_s: float,
) -> None:
    """Run every batch twice, the second time for the step-time model, until `limit_s` have passed; then fit it."""
    deadline_at = clock() + limit_s
    for batch in batches:
        run(batch)
        started_at = clock()
        run(batch)
        ended_at = clock()
        step_time.observe(batch.shape(), ended_at - started_at)
        if ended_at >= deadline_at:
            break
    step_time.fit()


def measure_verification(
    run: Run,
    batches: Iterator[SchedulerOutput],
    costs: Iterable[StepCosts],
    clock: Callable[[], float],
    *,
    num_speculative_tokens: int,
    limit_s: float,
) -> None:
    """Time decode steps plain and with few and many drafts for all `costs`, until `limit_s` have passed."""
    deadline_at = clock() + limit_s
    for batch in batches:
        variants = [
            _with_drafts(batch, num_drafts)
            for num_drafts in sorted({0, 1, -(-num_speculative_tokens // 2), num_speculative_tokens})
        ]
        seconds: list[list[float]] = [[] for _ in variants]
        for _ in range(_VERIFICATION_REPEATS):
            # In turn, so that all see the same machine.
            for variant, times in zip(variants, seconds, strict=True):
                started_at = clock()
                run(variant)
                times.append(clock() - started_at)
            if clock() >= deadline_at:
                break
        for variant, times in zip(variants, seconds, strict=True):
            for some in costs:
                _observe_step(variant, times, some)
        if clock() >= deadline_at:
            return


def _observe_step(batch: SchedulerOutput, times: list[float], costs: StepCosts) -> None:
    """Record a step's duration: the median of plain ones, the minimum of those with draft tokens.

    A cost that is too high is never corrected, because such drafts are not tried. The first requests correct one that
    is too low.
    """
    num_drafts = sum(len(chunk.draft_token_ids) for chunk in batch.chunks)
    costs.observe(len(batch.chunks), num_drafts, min(times) if num_drafts else median(times))


def _with_drafts(batch: SchedulerOutput, num_drafts: int) -> SchedulerOutput:
    """Return a copy of the step whose last tokens are draft tokens behind shorter sequences."""
    chunks = []
    for chunk in batch.chunks:
        seq = replace(chunk.seq, token_ids=chunk.seq.token_ids[: chunk.end - num_drafts])
        start = len(seq.token_ids) - 1
        chunks.append(ScheduledChunk(seq, start, 1, samples=True, draft_token_ids=(1,) * num_drafts))
    return SchedulerOutput(chunks)
