"""Rows rounded to int8 times int8 weights: whole numbers whose sums are exact, where a processor multiplies them so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cpu.execution.model import CompiledModel
from engine.cpu.gemm import rounded_tiles
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import PROJECTION
from engine.models.raw_weights import RawWeight
from engine.quantization.weights import quantize_channels
from tests.engine.cpu.step.test_prompts import show_states
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

SIZES = {"hidden_size": 192, "intermediate_size": 320, "vocab_size": 100}
PROMPT = [(index * 37 + index // 7) % 97 for index in range(90)]
WAYS = [pytest.param(True, id="codes", marks=pytest.mark.skipif(not rounded_tiles.IS_THERE, reason="no VNNI")), False]


class Rounding:
    """One projection's weights, and the memory that describes them."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        found = quantize_channels(weight)
        self.codes, self.scales, self.bias = found.codes, found.scales, bias
        self.memory = RecordMemory()
        record = self.memory.projection(RawWeight(found.codes, found.scales, bias, rounds_inputs=True))
        self.record = np.array([record], dtype=PROJECTION)

    def apply(self, inputs: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Outputs from the first on."""
        num_rows, size = inputs.shape
        num_outputs = self.codes.shape[0] - first
        room = np.zeros(num_rows * (4 * size + rounded_tiles.HEADER_BYTES), dtype=np.uint8)
        out = torch.full((num_rows, num_outputs + 3), 7.0)
        ready = prepared(self.record[0], inputs.data_ptr(), num_rows, room.ctypes.data)
        project(self.record[0], first, num_outputs, ready, num_rows, out.data_ptr(), num_outputs + 3)
        assert (out[:, num_outputs:] == 7.0).all(), "nothing is written behind the last output"
        return out[:, :num_outputs]

    def expected(self, inputs: torch.Tensor) -> torch.Tensor:
        """The same in torch's own operations."""
        lengths = inputs.abs().amax(1, keepdim=True).clamp(min=1e-30)
        codes = inputs.mul(127 / lengths).round()
        sums = (codes.double() @ self.codes.double().T).float()
        found = sums * (lengths / 127) * self.scales
        return found if self.bias is None else found + self.bias


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.fixture(params=WAYS)
def as_codes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether whole numbers are multiplied, or the float32 that they stand for."""
    monkeypatch.setattr(rounded_tiles, "IS_THERE", request.param)
    return bool(request.param)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 6, 7, 12, 13, 26])
@pytest.mark.parametrize("num_outputs", [3, LANES, 2 * LANES, 3 * LANES + 4, 7 * LANES])
def test_outputs_are_those_of_rounded_rows(num_rows: int, num_outputs: int, as_codes: bool) -> None:
    size = 5 * LANES
    rounding = Rounding(numbers(num_outputs + LANES, size), bias=numbers(num_outputs + LANES, seed=3))
    inputs = numbers(num_rows, size, seed=2) * torch.logspace(-6, 6, num_rows)[:, None]

    expected = rounding.expected(inputs)

    for first in (0, LANES):
        errors = (rounding.apply(inputs, first) - expected[:, first:]).abs().amax(1)
        assert (errors <= 1e-5 * (inputs.abs().amax(1) + 1.0)).all()
    assert bool(rounding.record["offsets"][0]) is as_codes


@pytest.mark.parametrize("size", [LANES, 4096])
def test_the_largest_codes_of_long_rows_are_summed_without_a_remainder(size: int, as_codes: bool) -> None:
    signs = torch.ones(2 * LANES, size)
    signs[1::2] = -1.0
    rounding = Rounding(signs)
    inputs = torch.stack([torch.full((size,), 5.0), torch.full((size,), -5.0)])

    found = rounding.apply(inputs)

    assert torch.allclose(found, 5.0 * size * torch.stack([signs[:, 0], -signs[:, 0]]), rtol=1e-6)


def test_a_row_of_zeros_gives_zeros(as_codes: bool) -> None:
    assert not Rounding(numbers(LANES, LANES)).apply(torch.zeros(2, LANES)).any()


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_makes_none_of_its_own_row_alone(odd: float, as_codes: bool) -> None:
    inputs = numbers(3, 3 * LANES)
    inputs[1, LANES + 3] = odd
    rounding = Rounding(numbers(2 * LANES, 3 * LANES))

    found = rounding.apply(inputs)

    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], rounding.apply(inputs[[0, 2]].contiguous()))


def runner(folder: Path, variant: str, **settings: object) -> PagedRunner:
    checkpoint = save_checkpoint(make_reference(variant, **SIZES), folder)
    found = PagedRunner(checkpoint, quantization="int8_dynamic", **settings)  # type: ignore[arg-type]
    if isinstance(found.model, CompiledModel):
        found.model.prompt_way = "vectors"
    return found


@pytest.mark.parametrize("variant", ["qwen3", "llama_biased", "phi3"])
def test_logits_are_those_of_the_libraries_products(variant: str, tmp_path: Path, as_codes: bool) -> None:
    compiled, plain = (runner(tmp_path, variant, compiled_threads=count) for count in (2, 0))
    exact = PagedRunner(tmp_path)
    assert isinstance(compiled.model, CompiledModel)
    assert compiled.model._layers["gate_up"]["rounds"].all()

    found, expected, unrounded = (one.prefill(Row(list(PROMPT)), [70, 1, 19]) for one in (compiled, plain, exact))

    # The order of a sum may change the code of a number that lies between two of them.
    assert (found - expected).square().mean() < (0.2**2) * (expected - unrounded).square().mean()
    compiled.model.close()


def test_a_token_gets_the_same_numbers_however_its_prompt_is_cut_and_whoever_helps(
    tmp_path: Path, as_codes: bool
) -> None:
    helped, alone = (runner(tmp_path, "qwen3", compiled_threads=count) for count in (2, 1))
    for one in (helped, alone):
        show_states(one)

    expected = helped.prefill(Row(list(PROMPT)), [90])

    assert torch.equal(alone.prefill(Row(list(PROMPT)), [31, 1, 1, 8]), expected)
    rows = [Row(list(PROMPT[:40])), Row(list(PROMPT))]
    together = helped.step([(rows[0], 40), (rows[1], 50)])
    assert torch.equal(together[0], expected[:40])
    assert torch.equal(together[1], expected[:50])
    for one in (helped, alone):
        one.model.close()  # type: ignore[attr-defined]


def test_prompts_of_such_weights_are_not_for_the_matrix_unit(tmp_path: Path) -> None:
    model = runner(tmp_path, "qwen3", compiled_threads=1).model
    assert isinstance(model, CompiledModel)
    assert model.prompt_ways == ["torch", "vectors"]
    model.close()
