"""The arithmetic of compiled steps, piece by piece, beside torch's."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.cpu.attention.block_loops import scorer, summer
from engine.cpu.attention.softmax_tile import NO_SINK, weights_of
from engine.cpu.gemm import arithmetic, products
from engine.cpu.gemm.micro_kernel import WeightKind
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.layout import PROJECTION
from engine.models.experts import ClampedGate
from tests.engine.cpu.gemm.packing import packed

Floats = npt.NDArray[np.float32]


def numbers(*shape: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@compiled
def weigh_scores(scores, size, start, end, scale, sink):  # type: ignore[no-untyped-def]
    return weights_of(scores, size, start, end, scale, sink)


def address(array: npt.NDArray[np.generic]) -> int:
    return array.ctypes.data


def projection(weights: torch.Tensor, size: int) -> npt.NDArray[np.void]:
    """The record of packed weights."""
    record = np.zeros(1, dtype=PROJECTION)
    record["packed"], record["num_inputs"] = weights.data_ptr(), size
    return record


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("num_outputs", [3, 8, LANES, 2 * LANES, 3 * LANES + 4, 4 * LANES, 7 * LANES])
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "bfloat16"])
def test_products_equal_torchs(num_rows: int, num_outputs: int, is_half: bool) -> None:
    size = 5 * LANES
    weights = torch.from_numpy(numbers(num_outputs + LANES, size))
    stored = weights.bfloat16() if is_half else weights
    by_vectors = packed(stored)
    inputs, out = numbers(num_rows, size, seed=2), np.full((num_rows, num_outputs + 3), 7.0, np.float32)

    record, product = projection(by_vectors, size), products.BFLOAT16 if is_half else products.FLOAT32
    product.multiply(address(record), LANES, num_outputs, address(inputs), num_rows, address(out), num_outputs + 3)

    expected = torch.from_numpy(inputs).double() @ stored[LANES:].double().T
    assert np.abs(out[:, :num_outputs] - expected.numpy()).max() < 1e-4
    assert (out[:, num_outputs:] == 7.0).all(), "nothing is written behind the last output"


@pytest.mark.parametrize("num_rows", [1, 2, 5, 6, 7, 12])
def test_a_row_gets_the_same_numbers_whatever_rows_share_its_tile(num_rows: int) -> None:
    size, num_outputs = 3 * LANES, 7 * LANES + 4
    weights = packed(torch.from_numpy(numbers(num_outputs, size)))
    record = projection(weights, size)
    inputs, out = numbers(13, size, seed=2), np.zeros((2, 13, num_outputs), np.float32)
    for found, together in zip(out, (1, num_rows), strict=True):
        for first in range(0, 13, together):
            count = min(together, 13 - first)
            rows, target = address(inputs[first:]), address(found[first:])
            products.FLOAT32.multiply(address(record), 0, num_outputs, rows, count, target, num_outputs)
    assert np.array_equal(out[0], out[1])


def test_exponentials_are_right_to_a_few_units_in_the_last_place() -> None:
    for x in np.linspace(-87.0, 88.0, 7001).astype(np.float32):
        assert float(arithmetic.exp(x)) == pytest.approx(math.exp(float(x)), rel=3e-7)
    assert arithmetic.exp(np.float32(-1e30)) < 1e-37
    assert math.isfinite(arithmetic.exp(np.float32(1e30)))


@pytest.mark.parametrize(("start", "end"), [(5, 43), (0, 48), (0, 1), (47, 48), (16, 32), (7, 17)])
def test_a_softmax_leaves_zeros_around_what_is_seen(start: int, end: int) -> None:
    scores = numbers(48)
    expected = torch.softmax(torch.from_numpy(scores[start:end].copy()) * 0.3, 0)

    share = weigh_scores(address(scores), 48, start, end, np.float32(0.3), NO_SINK)

    assert not scores[:start].any()
    assert not scores[end:].any()
    assert scores.max() == 1.0, "the likeliest is not rounded"
    assert np.abs(scores[start:end] * share - expected.numpy()).max() < 1e-6


@pytest.mark.parametrize("sink", [-200.0, -3.0, 0.4, 5.0, 80.0])
def test_a_sink_takes_its_share_of_a_softmax(sink: float) -> None:
    scores = numbers(48)
    with_sink = np.append(scores[5:43], np.float32(sink)).astype(np.float64) * 0.3
    expected = np.exp(with_sink - with_sink.max())
    expected /= expected.sum()

    share = weigh_scores(address(scores), 48, 5, 43, np.float32(0.3), np.float32(sink))

    assert not scores[:5].any()
    assert not scores[43:].any()
    assert np.abs(scores[5:43] * share - expected[:-1]).max() < 1e-6


def test_weights_are_right_to_a_few_units_in_the_last_place_however_far_they_are_apart() -> None:
    scores = np.zeros(8 * LANES, np.float32)
    scores[1:] = -np.linspace(0.0, 65.0, len(scores) - 1)
    expected = np.exp(scores.astype(np.float64))

    weigh_scores(address(scores), len(scores), 0, len(scores), np.float32(1.0), NO_SINK)

    assert np.abs(scores - expected).max() < 2e-7
    assert np.abs(scores / expected - 1.0).max() < 6e-6, "products are rounded where they are large"


def test_what_is_far_below_weighs_nothing_and_what_is_no_number_is_seen() -> None:
    scores = np.array([0.0, -1e30, -200.0] + [0.0] * (2 * LANES - 3), np.float32)
    weigh_scores(address(scores), 2 * LANES, 0, 3, np.float32(1.0), NO_SINK)
    assert scores[0] == 1.0
    assert (scores[1:3] < 1e-30).all()
    scores[1] = math.nan
    assert math.isnan(weigh_scores(address(scores), 2 * LANES, 0, 3, np.float32(1.0), NO_SINK))


@pytest.mark.parametrize("num_queries", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [LANES, 2 * LANES, 5 * LANES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_and_weighted_sums_are_made_by_vectors_of_keys(num_queries: int, size: int, dtype: torch.dtype) -> None:
    keys = torch.from_numpy(numbers(3 * LANES, size)).to(dtype)
    by_feature = packed(keys)  # as outputs of a projection lie, so do keys of a block
    together = 4 // keys.itemsize
    # Three blocks of values, the last of them in front of the others.
    blocks = keys.view(3, -1, together, size).transpose(2, 3)[[1, 2, 0]].contiguous()
    table = np.array([2, 0, 1])
    width = keys.itemsize
    queries = numbers(num_queries, size, seed=2)
    scores, out = np.zeros((num_queries, 3 * LANES), np.float32), np.ones((num_queries, size), np.float32)
    first, step, stride = by_feature.data_ptr(), width * LANES, 3 * LANES

    two = step * size * 2
    kind: WeightKind = "float32" if dtype == torch.float32 else "bfloat16"
    score, weigh = scorer(kind), summer(kind)
    score(first, step, two, address(queries), num_queries, size, address(scores), stride)
    third = address(scores) + 4 * 2 * LANES
    score(first + step * size, step, 0, address(queries), num_queries, size, third, stride)
    scores = scores.reshape(num_queries, 3, LANES)[:, [0, 2, 1]].reshape(num_queries, -1).copy()
    weigh(
        address(scores),
        stride,
        num_queries,
        blocks.data_ptr(),
        address(table),
        3,
        width * LANES * size,
        LANES,
        address(out),
        size,
        blocks.data_ptr(),
    )

    exact = keys.double().numpy()
    assert np.abs(scores - queries @ exact.T).max() < 1e-4
    assert np.abs(out - (1.0 + scores @ exact)).max() < 1e-3


@pytest.mark.parametrize("number", [0.0, 1.0, -1.00390625, 1.01171875, 3e38, 1e-40, math.inf, -math.inf, math.nan])
def test_numbers_are_rounded_to_bfloat16_as_torch_does(number: float) -> None:
    source, out = np.array([number] * 3, np.float32), torch.zeros(5, dtype=torch.bfloat16)
    arithmetic.put(address(source), 1, 3, out.data_ptr(), 2, 2)
    expected = torch.tensor([number]).bfloat16()
    assert torch.equal(out[::2].isnan(), expected.isnan().expand(3))
    assert torch.equal(out[::2].nan_to_num(7.0), expected.nan_to_num(7.0).expand(3))
    assert not out[1::2].any()


def test_gates_equal_torchs() -> None:
    gates, values = (torch.from_numpy(4 * numbers(77, seed=seed)) for seed in (3, 4))
    activated, scaled = torch.empty(77), values.clone()

    arithmetic.silu(gates.data_ptr(), activated.data_ptr(), 77)
    arithmetic.gate_sigmoid(gates.data_ptr(), scaled.data_ptr(), 77)

    assert torch.allclose(activated, torch.nn.functional.silu(gates), atol=1e-6)
    assert torch.allclose(scaled, values * gates.sigmoid(), atol=1e-6)


def test_clamped_gates_equal_torchs_and_keep_what_is_no_number() -> None:
    gates, ups = 4 * numbers(40), 4 * numbers(40, seed=2)
    gates[7] = ups[9] = math.nan
    gates[11], ups[12], ups[13] = math.inf, math.inf, -math.inf
    expected = ClampedGate(limit=3.0, gain=1.702)(torch.from_numpy(gates.copy()), torch.from_numpy(ups.copy()), "silu")
    out = np.zeros_like(gates)

    arithmetic.gate_clamped(address(gates), address(ups), address(out), 40, np.float32(3.0), np.float32(1.702))

    assert np.isnan(out).nonzero()[0].tolist() == [7, 9]
    np.testing.assert_allclose(out, expected.numpy(), rtol=2e-6, atol=1e-6)
