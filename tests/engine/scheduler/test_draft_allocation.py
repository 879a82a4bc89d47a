"""Drafts take what is left over, and change nothing but the number of steps."""

from __future__ import annotations

import random
from collections.abc import Sequence as SequenceOf

import pytest

from engine.models.multi_step import StepTaken
from engine.step.drafting import DraftRequest, Proposal
from engine.step.sequence import Sequence
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.fakes import FakeCore, greedy, make_add, next_tokens


class Highest(random.Random):
    """Draws the highest number there is."""

    def randint(self, a: int, b: int) -> int:
        """b."""
        return b


class PerfectDrafter(RandomDrafter):
    """Always right, always as many as fit."""

    def __init__(self, num_speculative_tokens: int = 4) -> None:
        super().__init__(next_tokens, Highest(), num_speculative_tokens=num_speculative_tokens)


def test_right_drafts_give_the_same_text_in_fewer_steps() -> None:
    core = FakeCore(drafter=PerfectDrafter())
    core.add(make_add(1, [5, 6, 7], 20))
    core.run()
    assert core.texts[1] == greedy([5, 6, 7], 20)
    assert core.tally.steps == 5  # the prompt, three times 4 drafts and one more, and what is left
    assert core.tally.accepted_tokens == core.tally.drafted_tokens == 15


def test_drafts_never_reach_past_max_tokens() -> None:
    core = FakeCore(drafter=PerfectDrafter(num_speculative_tokens=8))
    core.add(make_add(1, [5], 4))
    core.step()
    batch = core.step()
    assert len(batch.chunks[0].draft_token_ids) == 2
    assert core.ends[1].finish_reason == "length"


def test_a_stop_token_among_accepted_drafts_ends_the_sequence_there() -> None:
    text = greedy([5, 6], 12)
    stop = text[5]
    core = FakeCore(drafter=PerfectDrafter(num_speculative_tokens=8))
    core.add(make_add(1, [5, 6], 12, stop_token_ids=(stop,)))
    core.run()
    assert core.texts[1] == text[: text.index(stop) + 1]
    assert core.ends[1].finish_reason == "stop"


def test_min_tokens_holds_among_accepted_drafts() -> None:
    text = greedy([5, 6], 12)
    stop = text[2]
    core = FakeCore(drafter=PerfectDrafter(num_speculative_tokens=8))
    core.add(make_add(1, [5, 6], 12, stop_token_ids=(stop,), min_tokens=8))
    core.run()
    assert len(core.texts[1]) >= 8


def test_drafts_never_preempt_and_give_their_room_back() -> None:
    plain = FakeCore(num_blocks=9, max_num_seqs=4)
    with_drafts = FakeCore(num_blocks=9, max_num_seqs=4, drafter=PerfectDrafter())
    for core in (plain, with_drafts):
        for seq_id in range(4):
            core.add(make_add(seq_id, [seq_id, 1], 5))
        core.run()
        assert core.tally.preemptions == 0
    assert with_drafts.texts == plain.texts


def test_beside_a_prompts_chunk_nothing_is_drafted() -> None:
    core = FakeCore(max_num_batched_tokens=8, drafter=PerfectDrafter())
    core.add(make_add(1, [1, 2], 30))
    core.step()
    core.add(make_add(2, [3] * 20, 4))
    batch = core.step()
    assert len(batch.chunks) == 2
    assert not batch.has_drafts


class Following(PerfectDrafter):
    """Whose prompts may be followed by other steps."""

    def __init__(self, num_reached: int) -> None:
        super().__init__()
        self.num_reached = num_reached

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        return super().reach(seqs, is_decode=is_decode, may_follow=may_follow and not is_decode)


def test_steps_may_follow_a_prompt_as_far_as_its_tokens_reach() -> None:
    for max_tokens, reached in ((50, 3 + 12 + 1), (6, 3 + 6)):
        drafter = Following(num_reached=12)
        core = FakeCore(drafter=drafter)
        core.add(make_add(1, [5, 6, 7], max_tokens))
        core.step()
        assert drafter.followed == [[(1, reached)]]


def test_steps_may_follow_a_prompt_as_far_as_free_blocks_reach() -> None:
    drafter = Following(num_reached=12)
    core = FakeCore(num_blocks=7, drafter=drafter)
    core.add(make_add(1, list(range(14)), 2))
    core.step()
    core.add(make_add(2, [5, 6, 7], 20))
    core.step()
    # Of seven blocks of four tokens the first holds four; its next token is its last one.
    assert drafter.followed[1] == [(1, 16), (2, 3 * 4 + 1)]


def test_no_steps_follow_a_prompt_while_others_wait_for_theirs() -> None:
    drafter = Following(num_reached=12)
    core = FakeCore(max_num_batched_tokens=8, drafter=drafter)
    core.add(make_add(1, [5] * 7, 9))
    core.add(make_add(2, [6] * 12, 9))
    core.step()
    core.step()  # some of the second prompt is left
    assert drafter.followed == []
    core.run()
    assert [seq_id for of_step in drafter.followed for seq_id, _ in of_step] == [1, 2]


class Plain(PerfectDrafter):
    """Who drafts nothing, and lets others follow decode steps."""

    def __init__(self, num_reached: int) -> None:
        super().__init__()
        self.num_reached = num_reached

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        return super().reach(seqs, is_decode=is_decode, may_follow=may_follow and is_decode)

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        return super().propose(requests, 0)


def test_steps_may_follow_decode_steps_without_draft_tokens() -> None:
    drafter = Plain(num_reached=12)
    core = FakeCore(drafter=drafter)
    core.add(make_add(1, [5, 6, 7], 50))
    core.step()
    assert drafter.followed == []
    core.step()
    assert drafter.followed == [[(1, 4 + 12 + 1)]]


def test_no_steps_follow_a_decode_step_while_a_prompt_waits() -> None:
    drafter = Plain(num_reached=12)
    core = FakeCore(max_num_seqs=1, drafter=drafter)
    core.add(make_add(1, [5, 6, 7], 4))
    core.step()
    core.add(make_add(2, [8, 9], 4))
    core.step()
    assert drafter.followed == []
    core.run()
    assert {seq_id for of_step in drafter.followed for seq_id, _ in of_step} == {2}


def test_what_several_steps_stated_counts_as_drafts_but_for_one_token_each() -> None:
    core = FakeCore(drafter=Following(num_reached=12))
    core.add(make_add(1, [5, 6, 7], 9))
    batch = core.scheduler.schedule(core.clock())
    outputs = greedy([5, 6, 7], 9)
    core.clock.advance(0.010)
    steps = [StepTaken(0.006, 0), StepTaken(0.001, 3), StepTaken(0.003, 2)]
    output = StepOutput([SequenceResult(outputs[:6], num_drafted=5)], steps=steps)
    core.scheduler.update_from_output(batch, output, core.clock())
    (seq,) = core.scheduler.running()
    assert (seq.num_drafted_tokens, seq.num_accepted_tokens) == (5, 3)
    assert seq.num_computed_tokens == 3 + 5
    core.clock.advance(0.001)
    core.scheduler.abort([1], core.clock(), core.clock())
    (end,) = [output for output in core.scheduler.take_outputs() if output.finish_reason]
    assert end.stages is not None
    # The steps behind it are no part of the prompt.
    assert end.stages.prefill_s == pytest.approx(0.006)
    assert end.stages.decode_s == pytest.approx(0.005)


def test_accepted_drafts_behind_an_answers_end_count_for_nothing() -> None:
    core = FakeCore()
    core.add(make_add(1, [5], 20, stop_token_ids=(greedy([5], 3)[2],)))
    batch = core.scheduler.schedule(core.clock())
    output = StepOutput(
        [SequenceResult(greedy([5], 6), num_drafted=4)], steps=[StepTaken(0.001, 0), StepTaken(0.001, 4)]
    )
    core.scheduler.update_from_output(batch, output, core.clock())
    assert core.tally.generation_tokens == 3
    assert (core.tally.drafted_tokens, core.tally.accepted_tokens) == (4, 1)


def test_drafts_stay_within_the_budget() -> None:
    core = FakeCore(max_num_batched_tokens=6, drafter=PerfectDrafter(num_speculative_tokens=8))
    for seq_id in range(3):
        core.add(make_add(seq_id, [seq_id], 12))
    core.run()
    for seq_id in range(3):
        assert core.texts[seq_id] == greedy([seq_id], 12)


def test_accepted_drafts_are_found_by_the_next_request_and_rejected_ones_are_not() -> None:
    core = FakeCore(drafter=RandomDrafter(next_tokens, random.Random(3)))
    core.add(make_add(1, [1, 2, 3], 30))
    core.run()
    text = core.texts[1]
    core.add(make_add(2, [1, 2, 3, *text[:25]], 4))
    core.run()
    assert core.texts[2] == greedy([1, 2, 3, *text[:25]], 4)
    assert core.tally.prefix_hit_tokens >= 24
