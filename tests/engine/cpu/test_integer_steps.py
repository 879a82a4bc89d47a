"""Compiled steps of models with quantized weights: integer products of all projections."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import Quantization
from engine.cpu.execution.model import CompiledModel
from tests.engine.cpu.execution.test_prompt_rows import show_states
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

SIZES = {"hidden_size": 192, "intermediate_size": 320, "vocab_size": 100}
PROMPT = [(index * 37 + index // 7) % 97 for index in range(90)]
KINDS: dict[Quantization, set[str]] = {"int8": {"int8"}, "int8_dynamic": {"int8"}, "int4": {"int8", "int4 in groups"}}
"""Kinds of weights, where int4 has a vocabulary projection in int8."""


def runner(folder: Path, variant: str, quantization: Quantization, threads: int) -> PagedRunner:
    sizes = {**SIZES, "linear_value_head_dim": 16} if variant == "qwen3_5" else SIZES
    checkpoint = save_checkpoint(make_reference(variant, **sizes), folder)
    found = PagedRunner(checkpoint, quantization=quantization, compiled_threads=threads)
    if isinstance(found.model, CompiledModel):
        found.model.prompt_way = "vectors"
    return found


@pytest.mark.parametrize("quantization", list(KINDS))
@pytest.mark.parametrize("variant", ["qwen3", "llama_biased", "phi3", "qwen3_5", "granite", "gpt_oss"])
def test_logits_are_near_those_of_the_libraries_products(
    variant: str, quantization: Quantization, tmp_path: Path
) -> None:
    compiled, plain = (runner(tmp_path, variant, quantization, count) for count in (2, 0))
    exact = PagedRunner(tmp_path)
    assert isinstance(compiled.model, CompiledModel)
    kinds = {kind.partition(" times")[0] for kind in compiled.model.products}
    # Projections of a gated delta net that are this small stay numbers.
    assert kinds == KINDS[quantization] | ({"float32"} if variant == "qwen3_5" else set())

    found, expected, unquantized = (one.prefill(Row(list(PROMPT)), [70, 1, 19]) for one in (compiled, plain, exact))

    # Libraries round activations to bfloat16; codes of compiled steps add about the error of int8 weights again.
    assert (found - unquantized).square().mean() < 2 * (expected - unquantized).square().mean()
    compiled.model.close()


@pytest.mark.parametrize("variant", ["qwen3", "qwen3_5", "granite", "gpt_oss"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_a_token_gets_the_same_numbers_however_its_prompt_is_cut_and_whoever_helps(
    variant: str, quantization: Quantization, tmp_path: Path
) -> None:
    helped, alone = (runner(tmp_path, variant, quantization, count) for count in (2, 1))
    for one in (helped, alone):
        show_states(one)

    expected = helped.prefill(Row(list(PROMPT)), [90])

    assert (alone.prefill(Row(list(PROMPT)), [31, 1, 1, 8]) == expected).all()
    rows = [Row(list(PROMPT[:40])), Row(list(PROMPT))]
    together = helped.step([(rows[0], 40), (rows[1], 50)])
    assert (together[0] == expected[:40]).all()
    assert (together[1] == expected[:50]).all()
    for one in (helped, alone):
        one.model.close()  # type: ignore[attr-defined]


def test_prompts_of_weights_with_dynamic_rounding_are_not_for_the_matrix_unit(tmp_path: Path) -> None:
    model = runner(tmp_path, "qwen3", "int8_dynamic", 1).model
    assert isinstance(model, CompiledModel)
    assert model.prompt_ways == ["torch", "vectors"]
    model.close()
