"""Settings of device, threads and KV pool become a machine, or a reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.attention.base import AttentionSpec
from engine.attention.torch_kv_cache import QuantizedKVCache
from engine.config import CoreConfig, EngineConfigError
from engine.kv_cache.kv_pool import block_bytes
from engine.runner.machine import default_threads, find_machine


@pytest.mark.parametrize(("num_cores", "num_threads"), [(1, 1), (2, 2), (3, 3), (4, 3), (16, 15)])
def test_a_core_is_left_for_the_front_where_there_are_four(num_cores: int, num_threads: int) -> None:
    assert default_threads(num_cores) == num_threads


def test_an_int8_pool_is_counted_with_its_scales(checkpoint: Path) -> None:
    machine = find_machine(CoreConfig.of(model_dir=checkpoint, device="cpu", num_threads=1, kv_dtype="int8"))
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
    cache = machine.backend.allocate(3, 8, spec, machine.dtype)

    assert isinstance(cache, QuantizedKVCache)
    held = sum(t.nbytes for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales))
    assert machine.kv_dtype == torch.int8
    assert 3 * block_bytes([spec], 8, machine.kv_element_bytes, has_scales=True) == held


def test_fp8_pools_are_refused_on_a_cpu(checkpoint: Path) -> None:
    with pytest.raises(EngineConfigError, match="kv_dtype: fp8 needs a GPU"):
        find_machine(CoreConfig.of(model_dir=checkpoint, device="cpu", kv_dtype="fp8"))
