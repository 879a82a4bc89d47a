"""A step is laid out alike whichever way is quickest for its size."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest
import torch

from engine.protocol import Add, SamplingParams
from engine.step.input_buffers import InputBuffers
from engine.step.scheduler_output import ScheduledChunk
from engine.step.sequence import INT64, Sequence

BLOCK_SIZE = 4


def made_chunk(
    rng: random.Random, seq_id: int, *, num_tokens: int, num_drafts: int, is_stored: bool = False
) -> ScheduledChunk:
    token_ids = [rng.randrange(100) for _ in range(rng.randrange(20, 40))]
    params = SamplingParams(max_tokens=10, temperature=0.0)
    seq = Sequence.from_add(
        Add(seq_id=seq_id, prompt_token_ids=token_ids, params=params), arrival_index=0, received_at=0.0
    )
    seq.block_table = array(INT64, rng.sample(range(100), 12))
    drafts = tuple(rng.randrange(100) for _ in range(num_drafts))
    start = len(token_ids) - num_tokens
    return ScheduledChunk(seq, start, num_tokens, samples=True, draft_token_ids=drafts, is_stored=is_stored)


@pytest.mark.parametrize("seed", range(6))
def test_few_tokens_are_laid_out_as_many_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    chunks = [
        made_chunk(rng, 1, num_tokens=1, num_drafts=3),
        made_chunk(rng, 2, num_tokens=5, num_drafts=0),
        made_chunk(rng, 3, num_tokens=1, num_drafts=seed % 3),
        made_chunk(rng, 4, num_tokens=1, num_drafts=0, is_stored=True),
    ]
    rng.shuffle(chunks)
    laid_out = []
    for few in (32, 0):
        monkeypatch.setattr("engine.step.input_buffers._FEW_TOKENS", few)
        tokens, context = InputBuffers(64, 8, 12, BLOCK_SIZE, torch.device("cpu")).fill(chunks)
        tensors = (tokens, context.positions, context.slot_mapping, context.block_tables)
        laid_out.append(([one.tolist() for one in tensors], context.query_starts, context.context_lens))
    assert laid_out[0] == laid_out[1]


def test_a_step_reports_which_tokens_are_sampled() -> None:
    rng = random.Random(7)
    buffers = InputBuffers(64, 8, 12, BLOCK_SIZE, torch.device("cpu"))
    decoding, drafting = made_chunk(rng, 1, num_tokens=1, num_drafts=0), made_chunk(rng, 2, num_tokens=1, num_drafts=2)
    chunk, last = (made_chunk(rng, number, num_tokens=3, num_drafts=0) for number in (3, 4))
    chunk = replace(chunk, samples=False)
    assert buffers.fill([decoding, drafting])[1].sampled == [0, 1, 2, 3]
    assert buffers.fill([decoding, last])[1].sampled is None, "nobody asked"
    assert buffers.fill([chunk, drafting, last], with_sampled=True)[1].sampled == [3, 4, 5, 8]
