"""Which waiting sequence starts next, and which ones wait for sequences, blocks or a prefix."""

from __future__ import annotations

from itertools import count

from tests.engine.core.fakes import FakeCore, greedy, make_add
from tests.engine.scheduler.test_prompt_budget import add, roomy, tokens_of


def test_the_share_of_a_prompt_that_waits_for_its_prefix_is_not_lost() -> None:
    core = roomy()
    for seq_id in (1, 2):
        core.add(make_add(seq_id, range(90), 2, lane="interactive"))
    add(core, 3, 300, "long")
    core.step()
    assert sum(tokens_of(core.step()).values()) == 48


def test_rows_are_stored_for_short_prompts() -> None:
    core = roomy(max_num_seqs=16, num_blocks=2000)
    for seq_id in range(20):
        add(core, seq_id, 3, "batch", max_tokens=60)
    for _ in range(4):
        core.step()
    assert core.scheduler.num_running == 15
    add(core, 99, 3, "interactive", max_tokens=1)
    core.step()
    assert 99 in core.ends
    core.run()


def test_short_prompts_pass_a_long_one_that_lacks_blocks_but_not_for_ever() -> None:
    core = FakeCore(num_blocks=24, max_model_len=96, max_num_seqs=4)
    add(core, 0, 40, "long", max_tokens=8)
    ids = count(1)
    core.step()
    add(core, 1000, 70, "long", max_tokens=8)  # cannot start beside the first
    num_passed = 0
    for _ in range(200):
        if core.scheduler.num_waiting < 3:
            add(core, next(ids), 12, "interactive", max_tokens=6)
        core.step()
        if 1000 in core.texts:
            break
        num_passed = len([seq_id for seq_id in core.ends if 0 < seq_id < 1000])
    assert 1000 in core.texts
    assert num_passed > 0
    core.run()


def test_waiting_sequences_start_in_order_of_priority_then_arrival() -> None:
    core = FakeCore(max_num_seqs=1)
    for seq_id, priority in ((1, 0), (2, 1), (3, 0), (4, -1)):
        core.add(make_add(seq_id, [seq_id], max_tokens=2, priority=priority))
    core.run()
    assert list(core.ends) == [4, 1, 3, 2]


def test_a_request_that_does_not_fit_now_waits_for_blocks_and_then_runs() -> None:
    core = FakeCore(num_blocks=8)
    core.add(make_add(1, range(20), max_tokens=4))
    core.add(make_add(2, range(40, 60), max_tokens=4))
    core.step()
    assert (core.scheduler.num_running, core.scheduler.num_waiting) == (1, 1)
    assert core.scheduler.wait_forecast.is_short_of_blocks
    core.run()
    assert core.tally.preemptions == 0
    assert core.texts[2] == greedy(range(40, 60), 4)


def test_small_requests_do_not_overtake_one_that_waits_for_blocks() -> None:
    core = FakeCore(num_blocks=8)
    core.add(make_add(1, range(20), max_tokens=4))
    core.add(make_add(2, range(40, 60), max_tokens=4))
    core.add(make_add(3, [1], max_tokens=1))
    core.run()
    assert core.ends[3].stages is not None
    assert core.ends[3].stages.queue_s >= 0.03


def test_a_burst_of_one_prompt_waits_for_the_first_and_reuses_it() -> None:
    core = FakeCore(max_num_seqs=8, max_num_batched_tokens=64, num_blocks=64)
    for seq_id in range(6):
        core.add(make_add(seq_id, range(17), max_tokens=3))
    assert tokens_of(core.step()) == {0: 17}
    assert tokens_of(core.step()) == {0: 1} | dict.fromkeys(range(1, 6), 1)
    core.run()
    assert core.tally.prefix_hit_tokens == 5 * 16
    assert {tuple(text) for text in core.texts.values()} == {tuple(greedy(range(17), 3))}


def test_others_pass_a_sequence_that_waits_for_a_prefix() -> None:
    core = FakeCore(max_num_batched_tokens=64)
    core.add(make_add(1, range(17)))
    core.add(make_add(2, range(17)))
    core.add(make_add(3, [9, 9]))
    assert tokens_of(core.step()) == {1: 17, 3: 2}


def test_an_abort_of_the_one_computing_a_prefix_lets_the_next_compute_it() -> None:
    core = FakeCore(max_num_batched_tokens=8)
    core.add(make_add(1, range(17)))
    core.add(make_add(2, range(17)))
    core.step()
    core.abort(1)
    assert tokens_of(core.step()) == {2: 8}
    assert core.tally.prefix_hit_tokens == 8  # what the first had computed before it was aborted
    core.run()
    assert core.texts[2] == greedy(range(17), 4)
