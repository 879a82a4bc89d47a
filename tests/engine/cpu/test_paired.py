"""Inputs rounded to bfloat16 beside weights in bfloat16: close to float32, and the same numbers however computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.cpu.execution.model import CompiledModel
from engine.cpu.gemm import pair_tiles
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import PROMPT, reference_logits
from tests.engine.models.paged import PagedRunner, Row

SIZES = {"hidden_size": 96, "vocab_size": 100}
needs_pairs = pytest.mark.skipif(not pair_tiles.IS_THERE, reason="the processor does not multiply bfloat16")


def saved(folder: Path, variant: str = "qwen3") -> tuple[Path, torch.Tensor]:
    """A checkpoint in bfloat16, and the logits that transformers computes of it in float32."""
    reference = make_reference(variant, **SIZES)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.bfloat16())
    return save_checkpoint(reference, folder), reference_logits(reference, PROMPT)


def opened(folder: Path, *, pairs_inputs: bool = True) -> PagedRunner:
    found = PagedRunner(folder, compiled_threads=2, pairs_inputs=pairs_inputs)
    assert isinstance(found.model, CompiledModel)
    found.model.prompt_way = "vectors"
    return found


@needs_pairs
@pytest.mark.parametrize("variant", ["qwen3", "llama3", "llama_biased", "granite"])
def test_logits_are_close_to_those_of_float32(variant: str, tmp_path: Path) -> None:
    folder, expected = saved(tmp_path, variant)

    found, exact = (
        opened(folder, pairs_inputs=is_paired).prefill(Row(list(PROMPT)), [16]) for is_paired in (True, False)
    )

    assert not torch.equal(found, exact)
    assert (found - expected).norm() < 0.02 * expected.norm()
    assert (exact - expected).norm() < 1e-5 * expected.norm()


@needs_pairs
def test_logits_of_experts_are_as_close_where_no_rounding_leads_a_token_to_another_expert(tmp_path: Path) -> None:
    folder, expected = saved(tmp_path, "gpt_oss")

    found = opened(folder).prefill(Row(list(PROMPT)), [16])

    of_tokens = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert of_tokens.median() < 0.02


@needs_pairs
def test_a_token_gets_the_same_numbers_alone_in_a_batch_and_in_a_prompt(tmp_path: Path) -> None:
    folder, _ = saved(tmp_path)
    runner = opened(folder)
    tokens = [(5 * index * index + index) % 97 for index in range(90)]

    of_prompt = runner.prefill(Row(tokens), [90])
    one_by_one = runner.prefill(Row(tokens), [1])
    rows = [Row(tokens[:length]) for length in (90, 41, 7)]
    in_batch = runner.step([(row, 7) for row in rows])

    assert torch.equal(of_prompt, one_by_one)
    for found in in_batch:
        assert torch.equal(found, of_prompt[: found.shape[0]])


def test_weights_in_float32_keep_their_inputs(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3", **SIZES), tmp_path)

    paired, exact = (
        opened(folder, pairs_inputs=is_paired).prefill(Row(list(PROMPT)), [16]) for is_paired in (True, False)
    )

    assert torch.equal(paired, exact)
