"""Load of the core as it is reported."""

from __future__ import annotations

import pytest

from engine.core.load_meter import LoadMeter
from tests.engine.core.fakes import FakeCore, make_add


def meter(core: FakeCore) -> LoadMeter:
    return LoadMeter(core.scheduler, core.blocks, core.step_time)


def test_the_drain_rate_is_that_of_recent_steps_and_idle_time_does_not_count() -> None:
    found = meter(FakeCore())
    assert found.load().drain_tokens_per_s == 0.0
    found.observe(10, 0.1)
    assert found.load().drain_tokens_per_s == pytest.approx(100.0)
    for _ in range(1000):
        found.observe(5, 0.1)
    load = found.load()
    assert load.drain_tokens_per_s == pytest.approx(50.0, rel=0.01)
    assert (load.step_s, load.num_step_tokens) == (0.1, 5)


def test_the_load_counts_sequences_tokens_and_blocks() -> None:
    core = FakeCore(max_num_seqs=1)
    core.add(make_add(1, range(10), max_tokens=9))
    core.add(make_add(2, range(20, 25)))
    core.step()
    load = meter(core).load()
    assert (load.num_running, load.num_waiting, load.max_num_seqs) == (1, 1, 1)
    assert (load.num_blocks_total, load.num_blocks_free, load.num_blocks_leaked) == (32, core.blocks.num_free, 0)
    assert load.num_kv_tokens == 10
    assert load.lanes["interactive"].num_waiting == 1
    assert load.waiting_prompt_tokens == 5


def test_a_refreshed_load_updates_what_is_cheap_and_keeps_the_rest() -> None:
    core = FakeCore()
    found = meter(core)
    before = found.load()
    core.add(make_add(1, range(10), max_tokens=9))
    core.step()
    found.observe(10, 0.25)
    refreshed = found.refreshed(before)
    assert (refreshed.num_running, refreshed.num_blocks_free, refreshed.step_s) == (1, core.blocks.num_free, 0.25)
    assert (refreshed.num_kv_tokens, refreshed.drain_tokens_per_s) == (before.num_kv_tokens, 0.0)
