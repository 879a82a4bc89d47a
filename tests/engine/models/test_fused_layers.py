"""The fused parts of a layer compute what torch computes; whole models on them compute what the plain layers do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

pytest.importorskip("triton")

from engine.attention.triton_paged import TritonPagedAttention
from engine.models.config.config import Activation
from engine.models.fused_layers import FusedRMSNorm, gate_fused
from engine.models.fused_ops import TritonLayerOps
from engine.models.layers import RMSNorm
from engine.models.mlp import gate_in_place
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)
CPU = torch.device("cpu")
PROMPT = [(7 * index * index + 3 * index + 1) % 97 for index in range(30)]


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(3, 40, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norms_alone_and_with_an_addition_before_or_behind(rows: torch.Tensor, offset: float) -> None:
    weight = torch.linspace(-1, 2, 40)
    fused, plain = FusedRMSNorm(weight, 1e-5, offset), RMSNorm(weight, 1e-5, offset)
    expected, out = torch.empty_like(rows), torch.empty_like(rows)
    plain.into(rows, expected)

    fused.into(rows, out)
    assert torch.allclose(out, expected, atol=1e-5)

    total = torch.ones_like(rows)
    fused.add_to(total, rows)
    assert torch.allclose(total, 1 + expected, atol=1e-5)

    total = rows - 2
    fused.after_add(total, torch.full_like(rows, 2.0), out)
    assert torch.allclose(total, rows, atol=1e-6)
    assert torch.allclose(out, expected, atol=1e-5)


def test_norms_take_rows_that_are_part_of_wider_ones() -> None:
    wide = torch.randn(3, 64, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(1))
    part = wide[:, 8:48]
    before = wide.clone()
    expected = torch.nn.functional.rms_norm(part.float(), (40,), None, 1e-6).bfloat16()

    FusedRMSNorm(torch.ones(40, dtype=torch.bfloat16), 1e-6).into(part, part)

    # One step of bfloat16: a card rounds, the interpreter cuts off.
    assert torch.allclose(part, expected, rtol=2.0**-7, atol=0)
    assert torch.equal(wide[:, :8], before[:, :8])
    assert torch.equal(wide[:, 48:], before[:, 48:])


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gates_equal_activation_times_up(activation: Activation) -> None:
    buffer = torch.randn(3, 2 * 1100, generator=torch.Generator().manual_seed(2)) * 4
    fused = buffer.clone()
    expected = gate_in_place(buffer[:, :1100], buffer[:, 1100:], activation)

    out = gate_fused(fused[:, :1100], fused[:, 1100:], activation)

    assert torch.allclose(out, expected, atol=1e-5)
    assert torch.equal(fused[:, 1100:], buffer[:, 1100:])


@pytest.mark.parametrize("variant", ["llama_biased", "qwen3", "olmo2", "phi3_partial", "gemma3", "qwen2_moe"])
def test_fused_models_equal_plain_ones_over_chunks_decode_and_verification(variant: str, tmp_path: Path) -> None:
    folder = save_checkpoint(small_reference(variant), tmp_path)
    plain = PagedRunner(folder, shuffle_seed=3)
    fused = PagedRunner(folder, shuffle_seed=3, backend=TritonPagedAttention(device=CPU), ops=TritonLayerOps())
    for counts in ([9, 2], [1, 4]):
        work = [list(zip(rows, counts, strict=True)) for rows in _rows(plain, fused)]
        for one, other in zip(plain.step(work[0]), fused.step(work[1]), strict=True):
            assert torch.allclose(one, other, atol=2e-4)


def small_reference(variant: str) -> PreTrainedModel:
    """One layer and few heads: the interpreter takes a millisecond for each program."""
    changes = {"layer_types": ["sliding_attention"]} if variant == "gemma3" else {}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12}
    return make_reference(variant, num_hidden_layers=1, **heads, **changes)


def _rows(*runners: PagedRunner) -> list[list[Row]]:
    """The same two sequences for each runner, stored with it."""
    return [runner.__dict__.setdefault("rows", [Row(list(PROMPT)), Row(list(PROMPT[::-1]))]) for runner in runners]


@pytest.mark.parametrize(("kv_dtype", "tolerance"), [(torch.int8, 0.1), (torch.float8_e4m3fn, 0.6)])
def test_fused_stores_quantize_as_separate_ones_do(kv_dtype: torch.dtype, tolerance: float, tmp_path: Path) -> None:
    folder = save_checkpoint(small_reference("qwen3"), tmp_path)
    plain = PagedRunner(folder)
    backend = TritonPagedAttention(device=CPU, kv_dtype=kv_dtype)
    fused = PagedRunner(folder, backend=backend, ops=TritonLayerOps())
    separate = PagedRunner(folder, backend=TritonPagedAttention(device=CPU, kv_dtype=kv_dtype))

    logits = [runner.prefill(Row(list(PROMPT[:7])), [6]) for runner in (plain, fused, separate)]

    assert (logits[1] - logits[0]).abs().max() < tolerance * logits[0].std()
    assert torch.allclose(logits[1], logits[2], atol=0.05)
