"""The KV pool of the Triton backend: plain numbers, or codes with a scale for each token and head."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.attention.triton_kv_cache import TritonKVCache, max_code

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)
SLOTS = torch.tensor([5, 0, 3])


def test_only_two_dtypes_have_codes() -> None:
    assert (max_code(torch.int8), max_code(torch.float8_e4m3fn)) == (127.0, 448.0)
    with pytest.raises(ValueError, match=r"expected int8 or float8_e4m3fn, got torch\.float16"):
        max_code(torch.float16)


def test_a_plain_pool_holds_what_was_written_at_its_slots_alone() -> None:
    keys, values = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(1)).unbind()
    cache = TritonKVCache(torch.zeros(8, 2, 4, dtype=torch.bfloat16), torch.zeros(8, 2, 4, dtype=torch.bfloat16))
    cache.write(keys, values, SLOTS)
    assert torch.equal(cache.keys[SLOTS], keys.bfloat16())
    assert torch.equal(cache.values[SLOTS], values.bfloat16())
    assert not cache.keys[[1, 2, 4, 6, 7]].any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_quantized_pool_keeps_small_and_large_heads_equally_well(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(3, 2, 4, generator=generator) * torch.tensor([0.01, 100.0]).view(1, 2, 1)
    cache = TritonKVCache(
        torch.zeros(8, 2, 4, dtype=dtype), torch.zeros(8, 2, 4, dtype=dtype), torch.zeros(8, 2), torch.zeros(8, 2)
    )
    cache.write(keys, keys, SLOTS)
    assert cache.key_scales is not None
    stored = cache.keys[SLOTS].float() * cache.key_scales[SLOTS].unsqueeze(-1)
    assert ((stored - keys).abs().amax(-1) <= 0.07 * keys.abs().amax(-1)).all()
