"""Main memory as the pool's size reads it."""

from __future__ import annotations

from pathlib import Path

from engine.models.families.registry import read_model_config
from engine.runner.host_limits import HostLimits
from engine.runner.memory_probe import HostMemory, largest_step_bytes
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.runner.test_host_limits import machine

GIB = 1 << 30


def test_processes_that_share_a_machine_share_its_free_memory(tmp_path: Path) -> None:
    limits = machine(tmp_path, {})
    assert HostMemory(limits).free_bytes() == 8 * GIB
    assert HostMemory(limits, num_sharers=4).free_bytes() == 2 * GIB


def test_the_largest_step_is_bounded_without_running_it(tmp_path: Path) -> None:
    config = read_model_config(save_checkpoint(make_reference("qwen3"), tmp_path))
    bound = largest_step_bytes(config, num_seqs=64, num_tokens=512, context_len=8192)

    assert HostMemory(HostLimits()).step_bytes(_fail, bound) == bound
    assert bound > 4 * (64 * config.vocab_size + 512 * (8192 + config.intermediate_size))


def _fail() -> None:
    raise AssertionError("a step of the largest size takes up to a minute")
