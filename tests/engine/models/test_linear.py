"""Every kind of projection computes the same, with all three verbs."""

from __future__ import annotations

import pytest
import torch

from engine.models.linear import DenseLinear, Linear, PackedLinear, can_pack, make_linear


def build(kind: str, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    return DenseLinear(weight, bias) if kind == "dense" else PackedLinear(weight, bias)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("num_rows", [1, 2, 9, 70])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(24, 40), (1100, 1000)], ids=["small", "large"])
@torch.inference_mode()
def test_all_verbs_equal_the_product(kind: str, num_rows: int, has_bias: bool, shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    weight, inputs = torch.randn(shape), torch.randn(num_rows, 2 * shape[1])[:, : shape[1]]
    bias = torch.randn(shape[0]) if has_bias else None
    expected = inputs @ weight.t() + (0 if bias is None else bias)
    linear = build(kind, weight.clone(), bias)
    out, total = torch.empty(num_rows, shape[0]), torch.ones(num_rows, shape[0])

    linear.into(inputs, out)
    linear.add_to(total, inputs)

    for result in (linear.apply(inputs), out, total - 1):
        assert torch.allclose(result, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@torch.inference_mode()
def test_bfloat16_products_stay_close(kind: str) -> None:
    torch.manual_seed(1)
    weight, inputs = torch.randn(64, 48).bfloat16(), torch.randn(3, 48).bfloat16()
    if kind == "packed" and not can_pack(weight):
        pytest.skip("this processor has no fast bfloat16")

    result = build(kind, weight, None).apply(inputs)

    assert result.dtype == torch.bfloat16
    assert torch.allclose(result.float(), inputs.float() @ weight.float().t(), atol=0.3, rtol=0.02)


def test_float32_weights_on_a_cpu_are_packed_and_others_are_not() -> None:
    assert isinstance(make_linear(torch.randn(4, 4)), PackedLinear)
    assert isinstance(make_linear(torch.randn(4, 4, device="meta")), DenseLinear)
    assert isinstance(make_linear(torch.randn(4, 4, dtype=torch.float64)), DenseLinear)
