"""Int4 weights fitted to the inputs that a projection has seen."""

from __future__ import annotations

import pytest
import torch

from engine.models.linear import DenseLinear
from engine.quantization.calibrated_groups import InputMoments, quantize_calibrated
from engine.quantization.calibrated_linear import CalibratedLinear
from engine.quantization.weights import GroupWeight, quantize_groups

SIZE = 96


def correlated_inputs(num_tokens: int, seed: int = 0) -> torch.Tensor:
    """Inputs of a few common causes and of very different sizes, as activations are."""
    generator = torch.Generator().manual_seed(seed)
    causes = torch.randn(24, SIZE, generator=torch.Generator().manual_seed(7))
    sizes = torch.logspace(-1, 1, SIZE)
    noise = 0.1 * torch.randn(num_tokens, SIZE, generator=generator)
    return (torch.randn(num_tokens, 24, generator=generator) @ causes + noise) * sizes


def output_error(found: GroupWeight, weight: torch.Tensor, inputs: torch.Tensor) -> float:
    """The relative error of the outputs."""
    expected = inputs @ weight.t()
    return float((inputs @ found.dequantize().t() - expected).norm() / expected.norm())


def test_outputs_for_such_inputs_have_less_error() -> None:
    torch.manual_seed(1)
    weight, moments = torch.randn(64, SIZE), InputMoments(SIZE)
    moments.add(correlated_inputs(400))
    moments.add(correlated_inputs(400, seed=1))
    others = correlated_inputs(300, seed=2)

    calibrated, plain = quantize_calibrated(weight, 32, moments), quantize_groups(weight, 32)

    assert output_error(calibrated, weight, others) < 0.9 * output_error(plain, weight, others)
    assert (calibrated.codes.dtype, calibrated.bits, calibrated.group_size) == (torch.uint8, 4, 32)
    assert int(calibrated.codes.max()) <= 15


def test_correlation_that_only_a_short_text_shows_does_little_harm() -> None:
    torch.manual_seed(3)
    weight, moments = torch.randn(64, SIZE), InputMoments(SIZE)
    sizes = torch.logspace(-1, 1, SIZE)
    seen, others = torch.randn(20, SIZE) * sizes, torch.randn(300, SIZE) * sizes
    moments.add(seen)

    calibrated = quantize_calibrated(weight, 32, moments)
    by_sizes_alone = quantize_groups(weight, 32, seen.square().mean(0))

    assert output_error(calibrated, weight, others) < 1.06 * output_error(by_sizes_alone, weight, others)


def test_the_error_is_that_of_the_outputs() -> None:
    torch.manual_seed(2)
    weight, inputs, moments = torch.randn(64, SIZE), correlated_inputs(400), InputMoments(SIZE)
    moments.add(inputs)
    found = quantize_calibrated(weight, 32, moments)

    assert moments.error(found.dequantize(), weight) == pytest.approx(
        output_error(found, weight, inputs) ** 2, rel=1e-3
    )
    assert InputMoments(SIZE).error(found.dequantize(), weight) == 0


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_without_inputs_weights_are_quantized_alone(num_tokens: int) -> None:
    weight, moments = torch.randn(16, SIZE), InputMoments(SIZE)
    moments.add(torch.zeros(num_tokens, SIZE))

    found, plain = quantize_calibrated(weight, 32, moments), quantize_groups(weight, 32)

    assert float((found.dequantize() - weight).norm()) == pytest.approx(
        float((plain.dequantize() - weight).norm()), rel=0.2
    )


def test_a_projection_is_dense_until_it_has_seen_its_inputs() -> None:
    weight, inputs = torch.randn(32, SIZE), correlated_inputs(5)
    linear = CalibratedLinear(weight, None)
    out, total = torch.empty(5, 32), torch.zeros(5, 32)

    linear.into(inputs, out)
    linear.add_to(total, inputs)
    assert torch.equal(out, linear.apply(inputs))
    assert torch.allclose(total, out)
    assert linear.moments.num_tokens == 15

    linear.settle(lambda weight, moments: DenseLinear(weight * 2))
    assert torch.allclose(linear.apply(inputs), 2 * out, rtol=1e-4, atol=1e-3)
    assert linear.weight.numel() == 0
