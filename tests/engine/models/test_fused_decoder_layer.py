"""Whole models of fused layers compute what plain ones do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from transformers import PreTrainedModel

from engine.attention.triton_paged import TritonPagedAttention
from engine.models.fused_ops import TritonLayerOps
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)


CPU = torch.device("cpu")


RECURRENT = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 16}
PROMPT = [(7 * index * index + 3 * index + 1) % 97 for index in range(30)]


@pytest.mark.parametrize(
    "variant",
    [
        *("llama_biased", "qwen3", "olmo2", "phi3_partial", "gemma3", "qwen2_moe", "granite", "glm4", "smollm3"),
        *("gpt_oss", "qwen3_5", "qwen3_5_moe", "qwen3_next"),
    ],
)
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
    options: dict[str, dict[str, Any]] = {
        "gemma3": {"layer_types": ["sliding_attention"]},
        "smollm3": {"no_rope_layers": [0]},
        "qwen3_5": RECURRENT,
        "qwen3_5_moe": RECURRENT,
        "qwen3_next": RECURRENT,
    }
    changes = options.get(variant, {})
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12} | changes
    return make_reference(variant, num_hidden_layers=len(changes.get("layer_types", [variant])), **heads)


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
