"""Scheduler and runner over a real (tiny) model: how a sequence was computed never shows in its tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.attention.torch_kv_cache import AttentionScratch
from engine.protocol import Add, SamplingParams
from engine.step.sequence import Sequence
from tests.engine.core.checkpoints import VOCAB_SIZE, transformers_greedy
from tests.engine.core.tiny_core import BLOCK_SIZE, PROMPTS, SHARED, TinyCore


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    """What transformers answers to PROMPTS, greedily."""
    return [transformers_greedy(checkpoint, prompt, 16) for prompt in PROMPTS]


def test_answers_are_those_of_transformers(checkpoint: Path, expected: list[list[int]]) -> None:
    assert TinyCore(checkpoint).answers(PROMPTS) == expected


@pytest.mark.parametrize("budget", [8, 13, 31])
def test_chunked_prompts_give_the_answers_of_whole_ones(
    checkpoint: Path, expected: list[list[int]], budget: int
) -> None:
    assert TinyCore(checkpoint, budget=budget).answers(PROMPTS) == expected


def test_rows_alone_give_the_answers_of_rows_together(checkpoint: Path, expected: list[list[int]]) -> None:
    assert TinyCore(checkpoint, num_seqs=1).answers(PROMPTS) == expected


def test_preempted_sequences_give_the_same_answers(checkpoint: Path, expected: list[list[int]]) -> None:
    core = TinyCore(checkpoint, num_blocks=23)
    assert core.answers(PROMPTS) == expected
    assert core.tally.preemptions > 0


def test_the_prefix_cache_changes_no_answer(checkpoint: Path) -> None:
    without = TinyCore(checkpoint, prefix_cache=False)
    plain = [without.answers(SHARED), without.answers(SHARED[::-1])]
    core = TinyCore(checkpoint, budget=64)
    assert [core.answers(SHARED), core.answers(SHARED[::-1])] == plain
    assert core.tally.prefix_hit_tokens > 6 * len(PROMPTS[3]) // 2
    assert without.tally.prefix_hit_tokens == 0


def test_the_prefix_cache_under_pressure_changes_no_answer(checkpoint: Path) -> None:
    plain = TinyCore(checkpoint, prefix_cache=False).answers(SHARED + PROMPTS)
    core = TinyCore(checkpoint, num_blocks=24, budget=40)
    for _ in range(3):
        assert core.answers(SHARED + PROMPTS) == plain


@pytest.mark.parametrize("budget", [64, 9])
def test_prompts_that_the_pool_holds_whole_are_answered_from_it_and_leave_it_as_it_is(
    checkpoint: Path, budget: int
) -> None:
    prompts = [PROMPTS[0][:16], PROMPTS[2][:24], PROMPTS[0][:16], PROMPTS[1]]
    plain = TinyCore(checkpoint, prefix_cache=False).answers(prompts)
    core = TinyCore(checkpoint, budget=budget)
    assert core.answers(prompts[:2]) == plain[:2]
    blocks = {block for tokens in prompts[:2] for block in held_blocks(core, tokens)}
    assert len(blocks) == 5
    slots = torch.tensor([block * BLOCK_SIZE + place for block in sorted(blocks) for place in range(BLOCK_SIZE)])
    before = [cache.gather(slots, AttentionScratch()) for cache in core.caches]

    hits = core.tally.prefix_hit_tokens
    assert core.answers(prompts) == plain

    assert core.tally.prefix_hit_tokens - hits == 15 + 23 + 15
    for cache, (keys, values) in zip(core.caches, before, strict=True):
        found = cache.gather(slots, AttentionScratch())
        assert torch.equal(found[0], keys)
        assert torch.equal(found[1], values)


def held_blocks(core: TinyCore, tokens: list[int]) -> list[int]:
    """Blocks of the pool that hold these tokens."""
    add = Add(seq_id=0, prompt_token_ids=tokens, params=SamplingParams(max_tokens=1))
    return core.blocks.find_prefix(Sequence.from_add(add, arrival_index=0, received_at=0.0))


def test_a_seeded_answer_depends_on_nothing_but_its_seed(checkpoint: Path) -> None:
    alone = [TinyCore(checkpoint).answers([prompt], temperature=1.0, seed=11)[0] for prompt in PROMPTS]
    core = TinyCore(checkpoint, num_blocks=23, budget=13)
    assert core.answers(PROMPTS, temperature=1.0, seed=11) == alone
    assert core.answers(PROMPTS, temperature=1.0, seed=12) != alone


def test_penalties_survive_preemption(checkpoint: Path) -> None:
    plain = TinyCore(checkpoint).answers(PROMPTS, repetition_penalty=1.3, frequency_penalty=0.5)
    core = TinyCore(checkpoint, num_blocks=23)
    assert core.answers(PROMPTS, repetition_penalty=1.3, frequency_penalty=0.5) == plain
    assert core.tally.preemptions > 0
    assert plain != TinyCore(checkpoint).answers(PROMPTS)


def test_logprobs_come_with_every_token(checkpoint: Path) -> None:
    core = TinyCore(checkpoint)
    core.answers(PROMPTS[:1], num_top_logprobs=2)
    assert len(core.outputs) == 16
    for output in core.outputs:
        assert output.logprobs is not None
        (found,) = output.logprobs
        assert found.top[0][0] == output.token_ids[0]
        assert found.top[0][1] == pytest.approx(found.logprob)
        assert len(found.top) == 2


def test_logits_that_are_not_numbers_end_the_sequence_with_an_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = TinyCore(checkpoint)
    monkeypatch.setattr(core.model, "logits", lambda hidden: torch.full((len(hidden), VOCAB_SIZE), float("nan")))
    core.scheduler.add(Add(seq_id=0, prompt_token_ids=[1], params=SamplingParams(max_tokens=3)), 0.0)
    batch = core.scheduler.schedule(0.0)
    core.scheduler.update_from_output(batch, core.runner.execute(batch), 0.0)
    (output,) = core.scheduler.take_outputs()
    assert output.finish_reason == "error"
    assert "not numbers" in (output.error or "")
