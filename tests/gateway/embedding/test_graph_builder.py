"""Quantization by blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.embedding.graph_builder import quantize_blocks


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), outputs=st.integers(1, 5), blocks=st.integers(1, 4))
def test_no_weight_is_off_by_more_than_half_a_step_of_its_block(seed: int, outputs: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((outputs, blocks * 16)) * 10.0 ** rng.integers(-4, 4)
    weight = drawn.astype(np.float32)
    quantized, scales = quantize_blocks(weight, 16)
    restored = ((quantized.astype(np.float32) - 128) * scales[..., None]).reshape(weight.shape)
    steps = np.repeat(scales, 16, axis=1)
    assert (np.abs(restored - weight) <= steps * 0.5001).all()


def test_a_block_of_zeros_stays_zero() -> None:
    quantized, scales = quantize_blocks(np.zeros((2, 32), np.float32), 16)
    assert (quantized == 128).all()
    assert np.isfinite(scales).all()
