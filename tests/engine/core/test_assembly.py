"""The core put together from its settings and a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol import (
    Fatal,
    Shutdown,
)
from tests.engine.core.test_process import core_thread, greedy_add

pytestmark = pytest.mark.e2e


_TIMEOUT_S = 60.0


def test_a_pool_too_small_for_the_model_shortens_what_a_sequence_may_reach(checkpoint: Path) -> None:
    with core_thread(model_dir=str(checkpoint), device="cpu", num_threads=1, num_blocks=4) as (front, status):
        _, ready = front.wait_until_ready()
        assert ready.max_model_len == 64
        front.send(greedy_add(1, [5] * 60, 5))
        (output,) = front.step().outputs
        assert output.finish_reason == "error"
        front.send(Shutdown())
        assert status.result(_TIMEOUT_S) == 0


def test_a_sequence_longer_than_the_model_reaches_is_a_wrong_setting(checkpoint: Path) -> None:
    with core_thread(model_dir=str(checkpoint), device="cpu", num_threads=1, max_model_len=257) as (front, status):
        message = front.receive_after_progress()
        assert isinstance(message, Fatal)
        assert message.is_settings
        assert "max_model_len: the model reaches 256 tokens, got 257" in message.message
        assert status.result(_TIMEOUT_S) == 1


def test_a_ready_core_reports_its_settings_and_a_load_without_work(checkpoint: Path) -> None:
    settings = {"num_blocks": 32, "max_num_seqs": 4, "speculation": "ngram", "max_num_batched_tokens": 64}
    with core_thread(model_dir=str(checkpoint), device="cpu", num_threads=1, **settings) as (front, status):
        phases, ready = front.wait_until_ready()
        assert [phase.name for phase in phases] == ["import", "weights", "kv_pool", "warm_up"]
        assert (ready.speculates, ready.max_num_batched_tokens) == (True, 64)
        assert ready.load is not None
        assert (ready.load.num_blocks_free, ready.load.num_running, ready.load.max_num_seqs) == (32, 0, 4)
        assert ready.load.step_time is not None
        front.send(Shutdown())
        assert status.result(_TIMEOUT_S) == 0
