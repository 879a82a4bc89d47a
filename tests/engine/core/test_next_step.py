"""The step behind one whose tokens are still being computed."""

from __future__ import annotations

from engine.core.next_step import NextStep
from engine.step.scheduler_output import SchedulerOutput
from tests.engine.core.fakes import FakeCore, make_add
from tests.engine.core.test_overlap import FakeLauncher


def started(core: FakeCore) -> tuple[NextStep, SchedulerOutput]:
    """Return the predictor and a step of decoding sequences under way."""
    core.step()
    found = NextStep(core.scheduler, core.blocks, FakeLauncher(core))
    scheduled = core.scheduler.schedule(core.clock())
    found.scheduled()
    return found, scheduled


def following(found: NextStep, scheduled: SchedulerOutput, core: FakeCore) -> list[tuple[int, int]] | None:
    step = found.following(scheduled, core.clock())
    return None if step is None else [(chunk.seq.seq_id, chunk.start) for chunk in step.chunks]


def test_every_sequence_goes_on_by_one_token_and_has_its_block() -> None:
    core = FakeCore()
    for seq_id in (1, 2):
        core.add(make_add(seq_id, range(3), max_tokens=9, salt=bytes([seq_id])))
    found, scheduled = started(core)
    assert [(chunk.seq.seq_id, chunk.start) for chunk in scheduled.chunks] == [(1, 3), (2, 3)]
    assert following(found, scheduled, core) == [(1, 4), (2, 4)]
    assert all(len(chunk.seq.block_table) == 2 for chunk in scheduled.chunks)


def test_a_sequence_that_the_step_ends_by_length_is_left_out() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=2))
    core.add(make_add(2, [2], max_tokens=9))
    found, scheduled = started(core)
    assert following(found, scheduled, core) == [(2, 2)]


def test_where_all_end_nothing_follows() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=2))
    found, scheduled = started(core)
    assert following(found, scheduled, core) is None


def test_a_sequence_that_could_start_now_is_the_schedulers() -> None:
    core = FakeCore(max_num_seqs=2)
    core.add(make_add(1, [1], max_tokens=9))
    found, scheduled = started(core)
    core.add(make_add(2, [2], max_tokens=9))
    assert following(found, scheduled, core) is None


def test_a_sequence_that_waits_for_a_row_holds_nobody_up() -> None:
    core = FakeCore(max_num_seqs=1)
    core.add(make_add(1, [1], max_tokens=9))
    found, scheduled = started(core)
    core.add(make_add(2, [2], max_tokens=9))
    assert following(found, scheduled, core) == [(1, 2)]


def test_a_deadline_that_has_passed_is_the_schedulers() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=9, deadline_s=0.5))
    found, scheduled = started(core)
    core.clock.advance(1.0)
    assert following(found, scheduled, core) is None


def test_where_blocks_are_short_the_scheduler_preempts() -> None:
    core = FakeCore(num_blocks=3, max_model_len=8)
    core.forecast.observe("interactive", 1)
    for seq_id in (1, 2):
        core.add(make_add(seq_id, [seq_id] * 3, max_tokens=5))
    found, scheduled = started(core)
    assert (len(scheduled.chunks), core.blocks.num_free) == (2, 1)
    assert following(found, scheduled, core) is None
