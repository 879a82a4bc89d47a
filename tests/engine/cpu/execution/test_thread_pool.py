"""Threads help with a step when they are there, and a step is done without them."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cpu.execution.joint_work import lead
from engine.cpu.jit.layout import GENERATION
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

TOKENS = [(5 * index * index + index) % 97 for index in range(40)]


def helpers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "compiled-step"}


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[PagedRunner]:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=96, vocab_size=100), tmp_path)
    found = PagedRunner(folder, compiled_threads=1)
    yield found
    found.model.close()  # type: ignore[attr-defined]


def test_one_thread_needs_no_helper(runner: PagedRunner) -> None:
    before = helpers()
    runner.prefill(Row(list(TOKENS)), [8])
    assert helpers() == before


def test_a_step_is_done_though_its_helper_never_comes(runner: PagedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = runner.prefill(Row(list(TOKENS)), [8])
    asleep = threading.Event()
    monkeypatch.setattr("engine.cpu.execution.thread_pool.serve", lambda *arguments: asleep.wait())
    runner.model.resize(3)  # type: ignore[attr-defined]
    try:
        assert torch.equal(runner.prefill(Row(list(TOKENS)), [8]), expected)
    finally:
        asleep.set()


def until_somebody_works(model: Any, *, seconds: float) -> int:
    """How many pieces of the step's first phase others have taken after so long at most. The interpreter's lock is not
    let go of meanwhile."""
    deadline = time.monotonic() + seconds
    while not model.thread_pool._work_queue[0] and time.monotonic() < deadline:
        pass
    return int(model.thread_pool._work_queue[0])


def num_asleep(model: Any) -> int:
    """How many helpers sleep until a step opens."""
    return int(model.thread_pool._control[GENERATION // 8]) >> 32


def test_helpers_that_went_to_sleep_are_called_for_the_next_step(
    runner: PagedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And need nothing of the interpreter, which has better things to do."""
    model: Any = runner.model
    num_taken: list[int] = []

    def late(*arguments: object) -> None:
        num_taken.append(until_somebody_works(model, seconds=5.0))
        lead(*arguments)

    before = sys.getswitchinterval()
    row = Row(list(TOKENS))
    model.resize(2)
    runner.step([(Row([1]), 1)])
    monkeypatch.setattr("engine.cpu.execution.thread_pool.lead", late)
    sys.setswitchinterval(60.0)
    try:
        for _ in range(3):
            deadline = time.monotonic() + 30.0
            while num_asleep(model) < 1 and time.monotonic() < deadline:
                time.sleep(0.001)
            runner.step([(row, 8)])
    finally:
        sys.setswitchinterval(before)
    assert len(num_taken) > 2
    assert min(num_taken) > 0


def test_without_futexes_a_step_is_computed_by_the_thread_that_calls(
    runner: PagedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, before = runner.prefill(Row(list(TOKENS)), [8]), helpers()
    monkeypatch.setattr("engine.cpu.execution.thread_pool.HAS_FUTEX", False)
    runner.model.resize(3)  # type: ignore[attr-defined]
    assert torch.equal(runner.prefill(Row(list(TOKENS)), [8]), expected)
    assert helpers() == before


def test_closing_ends_the_helpers(runner: PagedRunner) -> None:
    before = helpers()
    runner.model.resize(4)  # type: ignore[attr-defined]
    runner.prefill(Row(list(TOKENS)), [8])
    started = helpers() - before
    assert len(started) == 3

    runner.model.close()  # type: ignore[attr-defined]
    for thread in started:
        thread.join(timeout=30.0)
    assert not any(thread.is_alive() for thread in started)

    # What comes then is done by the thread that calls.
    runner.model.resize(2)  # type: ignore[attr-defined]
    runner.prefill(Row(list(TOKENS)), [8])
    assert helpers() <= before


def test_a_helper_that_is_not_wanted_any_more_has_room_for_the_step_it_may_still_join(runner: PagedRunner) -> None:
    model: Any = runner.model
    model.resize(3)
    row = Row(list(TOKENS) * 12)
    runner.step([(row, 8)])
    model.resize(1)
    memory = model._memory
    before = memory._scratch_size
    model.max_tokens = 0
    runner.step([(row, 440)])
    model.max_tokens = 64

    # Longer than anything before: each thread's part is made anew.
    memory._config = dataclasses.replace(model.config, num_heads=model.config.num_heads * 8)
    runner.step([(row, 1)])

    assert memory._scratch_size > before
    assert {buffer.shape[0] for buffer in memory._of_threads} == {memory._num_threads} == {3}
