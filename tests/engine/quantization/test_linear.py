"""Quantized projections have the verbs of all others, and a model made of them states nearly the same."""

from __future__ import annotations

import time

import pytest
import torch

from engine.config import Quantization
from engine.models.linear import PackedLinear
from engine.quantization.choice import KernelTable
from engine.quantization.float8 import QuantizationError
from engine.quantization.maker import LinearMaker
from engine.quantization.weights import GroupWeight, quantize_groups


def maker(quantization: Quantization) -> LinearMaker:
    return LinearMaker(quantization, KernelTable(time.perf_counter))


@pytest.mark.parametrize(("quantization", "bound"), [("int8", 0.02), ("int8_dynamic", 0.02), ("int4", 0.12)])
@pytest.mark.parametrize("num_rows", [1, 5, 30])
@pytest.mark.parametrize("has_bias", [False, True])
@torch.inference_mode()
def test_all_verbs_are_near_the_product(
    quantization: Quantization, bound: float, num_rows: int, has_bias: bool
) -> None:
    torch.manual_seed(1)
    weight, inputs = torch.randn(128, 256), torch.randn(num_rows, 256)
    bias = torch.randn(128) if has_bias else None
    expected = inputs @ weight.t() + (0 if bias is None else bias)
    linear = maker(quantization).dense(weight, bias)
    out, total = torch.empty(num_rows, 128), torch.ones(num_rows, 128)

    linear.into(inputs, out)
    linear.add_to(total, inputs)

    for result in (linear.apply(inputs), out, total - 1):
        assert result.dtype == torch.float32
        assert float((result - expected).norm() / expected.norm()) < bound


@torch.inference_mode()
def test_bfloat16_activations_stay_bfloat16() -> None:
    weight, inputs = torch.randn(128, 256).bfloat16(), torch.randn(3, 256).bfloat16()
    for quantization in ("int8", "int8_dynamic", "int4"):
        linear = maker(quantization).dense(weight.clone())
        total = torch.zeros(3, 128, dtype=torch.bfloat16)
        linear.add_to(total, inputs)

        assert linear.apply(inputs).dtype == torch.bfloat16
        assert torch.allclose(total.float(), linear.apply(inputs).float(), atol=0.5, rtol=0.05)


def test_int4_falls_back_to_int8_where_groups_do_not_divide_the_inputs() -> None:
    weight = torch.randn(512, 200)
    inputs = torch.randn(2, 200)

    result = maker("int4").dense(weight.clone()).apply(inputs)

    assert float((result - inputs @ weight.t()).norm() / (inputs @ weight.t()).norm()) < 0.02


@pytest.mark.parametrize(
    ("is_sensitive", "has_4_bits", "num_retained"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
@torch.inference_mode()
def test_a_sensitive_projection_stays_int8_where_int4_would_lose_too_much(
    is_sensitive: bool, has_4_bits: bool, num_retained: int
) -> None:
    torch.manual_seed(5)
    weight, inputs = torch.randn(128, 256), torch.randn(40, 256)
    if has_4_bits:
        weight = quantize_groups(weight, 32).dequantize()
    found = maker("int4")
    found.is_calibrating = True
    linear = found.dense(weight.clone(), is_sensitive=is_sensitive)
    expected = linear.apply(inputs)

    found.settle()

    assert (found.num_retained, found.num_calibrated) == (num_retained, 1)
    error = float((linear.apply(inputs) - expected).norm() / expected.norm())
    assert (error < 0.02) == (is_sensitive or has_4_bits)


def test_little_weights_and_unquantized_ones_stay_as_they_are() -> None:
    assert isinstance(maker("int8").dense(torch.randn(8, 8)), PackedLinear)
    assert isinstance(maker("none").dense(torch.randn(256, 256)), PackedLinear)


def test_the_head_leaves_the_embedding_alone() -> None:
    embedding = torch.randn(256, 128)
    before = embedding.clone()
    for quantization in ("int8", "int8_dynamic", "int4"):
        maker(quantization).head(embedding)

    assert torch.equal(embedding, before)


def test_fp8_on_a_cpu_is_refused_with_the_reason() -> None:
    with pytest.raises(QuantizationError, match="fp8 needs a GPU"):
        maker("fp8").dense(torch.randn(256, 256))


@pytest.mark.parametrize("has_same_order", [True, False])
@torch.inference_mode()
def test_projections_of_a_quantized_checkpoint_are_stacked(has_same_order: bool) -> None:
    torch.manual_seed(4)
    order = torch.randperm(64)
    plain = [quantize_groups(torch.randn(16, 64), 32) for _ in range(2)]
    orders = (order, order if has_same_order else None)
    parts = [GroupWeight(p.codes, p.scales, p.zeros, 4, o) for p, o in zip(plain, orders, strict=True)]
    inputs, bias = torch.randn(3, 64), torch.randn(32)
    expected = inputs @ torch.cat([part.dequantize() for part in parts]).t() + bias
    linear = maker("none").published(parts, bias, torch.float32)
    out, total = torch.empty(3, 32), torch.ones(3, 32)

    linear.into(inputs, out)
    linear.add_to(total, inputs)

    for result in (linear.apply(inputs), out, total - 1):
        assert float((result - expected).norm() / expected.norm()) < 0.01
