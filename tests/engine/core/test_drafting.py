"""Drafts take what is left over, and change nothing but the number of steps."""

from __future__ import annotations

import random

from engine.core.verification import accept
from engine.messages import TokenLogprobs
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.fakes import FakeCore, greedy, make_add, next_tokens


class Highest(random.Random):
    """Draws the highest number there is."""

    def randint(self, a: int, b: int) -> int:
        """b."""
        return b


class PerfectDrafter(RandomDrafter):
    """Always right, always as many as fit."""

    def __init__(self, max_drafts: int = 4) -> None:
        super().__init__(next_tokens, Highest(), max_drafts=max_drafts)


def test_right_drafts_give_the_same_text_in_fewer_steps() -> None:
    core = FakeCore(drafter=PerfectDrafter())
    core.add(make_add(1, [5, 6, 7], 20))
    core.run()
    assert core.texts[1] == greedy([5, 6, 7], 20)
    assert core.tally.steps == 5  # the prompt, three times 4 drafts and one more, and what is left
    assert core.tally.accepted_tokens == core.tally.drafted_tokens == 15


def test_drafts_never_reach_past_max_tokens() -> None:
    core = FakeCore(drafter=PerfectDrafter(max_drafts=8))
    core.add(make_add(1, [5], 4))
    core.step()
    batch = core.step()
    assert len(batch.rows[0].draft_token_ids) == 2
    assert core.ends[1].finish_reason == "length"


def test_a_stop_token_among_accepted_drafts_ends_the_sequence_there() -> None:
    text = greedy([5, 6], 12)
    stop = text[5]
    core = FakeCore(drafter=PerfectDrafter(max_drafts=8))
    core.add(make_add(1, [5, 6], 12, stop_token_ids=(stop,)))
    core.run()
    assert core.texts[1] == text[: text.index(stop) + 1]
    assert core.ends[1].finish_reason == "stop"


def test_min_tokens_holds_among_accepted_drafts() -> None:
    text = greedy([5, 6], 12)
    stop = text[2]
    core = FakeCore(drafter=PerfectDrafter(max_drafts=8))
    core.add(make_add(1, [5, 6], 12, stop_token_ids=(stop,), min_tokens=8))
    core.run()
    assert len(core.texts[1]) >= 8


def test_drafts_never_preempt_and_give_their_room_back() -> None:
    plain = FakeCore(num_blocks=9, max_num_rows=4)
    with_drafts = FakeCore(num_blocks=9, max_num_rows=4, drafter=PerfectDrafter())
    for core in (plain, with_drafts):
        for seq_id in range(4):
            core.add(make_add(seq_id, [seq_id, 1], 5))
        core.run()
        assert core.tally.preemptions == 0
    assert with_drafts.texts == plain.texts


def test_beside_a_prompts_chunk_nothing_is_drafted() -> None:
    core = FakeCore(step_token_budget=8, drafter=PerfectDrafter())
    core.add(make_add(1, [1, 2], 30))
    core.step()
    core.add(make_add(2, [3] * 20, 4))
    batch = core.step()
    assert len(batch.rows) == 2
    assert not batch.has_drafts


def test_drafts_stay_within_the_budget() -> None:
    core = FakeCore(step_token_budget=6, drafter=PerfectDrafter(max_drafts=8))
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


def test_tokens_are_accepted_up_to_the_first_difference() -> None:
    logprobs = [TokenLogprobs(-float(n)) for n in range(4)]
    result = accept((7, 8, 9), [7, 8, 5, 6], logprobs, [False] * 4)
    assert result.token_ids == [7, 8, 5]
    assert result.logprobs == logprobs[:3]


def test_all_drafts_right_bring_one_token_more() -> None:
    assert accept((7, 8), [7, 8, 9], [None] * 3, [False] * 3).token_ids == [7, 8, 9]


def test_a_position_without_a_choice_ends_the_run_before_it() -> None:
    assert accept((7, 8), [7, 8, 9], [None] * 3, [False, True, False]).token_ids == [7]
    assert accept((7, 8), [7, 8, 9], [None] * 3, [True, False, False]).error is not None
