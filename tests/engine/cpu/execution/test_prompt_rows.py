"""Prompts that are computed apart: what transformers computes, however a prompt is cut and whoever helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.attention.base import ForwardContext
from engine.cpu.execution.prompt_rows import cut_evenly, split_rows
from engine.cpu.gemm.matrix_unit import is_permitted
from engine.cpu.step.prompt_mode import PromptWay
from tests.engine.cpu.execution.test_model import COMPILABLE, RECURRENT, SIZES, kinds, set_limit, sizes_of
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import TOLERANCE, reference_logits
from tests.engine.models.paged import PagedRunner, Row

needs_unit = pytest.mark.skipif(not is_permitted(), reason="the processor has no matrix unit, or it may not be used")
WAYS = ["vectors", "matrix unit"]
LARGE = {"hidden_size": 96, "intermediate_size": 192, "vocab_size": 128}
PROMPT = [(index * 37 + index // 7) % 97 for index in range(200)]


def open_runner(
    variant: str,
    folder: Path,
    way: PromptWay,
    *,
    is_half: bool = False,
    sizes: dict[str, int] = SIZES,
    **settings: object,
) -> PagedRunner:
    """`is_half`: the checkpoint holds what bfloat16 can say, which is what the matrix unit is for."""
    runner = PagedRunner(make_checkpoint(variant, folder, is_half, sizes), shuffle_seed=4, **settings)  # type: ignore[arg-type]
    if hasattr(runner.model, "prompt_way"):
        runner.model.prompt_way = way
    return runner


def show_states(runner: PagedRunner) -> None:
    """Let steps return hidden states: how logits are computed depends on how many are wanted."""
    runner.model.logits = lambda hidden: hidden  # type: ignore[method-assign]


def make_checkpoint(variant: str, folder: Path, is_half: bool, sizes: dict[str, int]) -> Path:
    reference = make_reference(variant, **sizes)
    if is_half:
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.copy_(parameter.bfloat16())
    return save_checkpoint(reference, folder)


@pytest.mark.parametrize("variant", COMPILABLE)
@pytest.mark.parametrize("way", WAYS)
def test_logits_equal_transformers_on_any_processor(variant: str, way: PromptWay, tmp_path: Path) -> None:
    sizes = sizes_of(variant)
    runner = open_runner(variant, tmp_path, way, sizes=sizes, compiled_threads=2)

    logits = runner.prefill(Row(PROMPT[:150]), [70, 33, 1, 100])

    # A state collects the rounding errors of all tokens, in transformers too.
    tolerance = 3 * TOLERANCE if variant in RECURRENT else TOLERANCE
    assert (logits - reference_logits(make_reference(variant, **sizes), PROMPT[:150])).abs().max() < tolerance


@needs_unit
@pytest.mark.parametrize("variant", ["qwen3", "mistral", "llama_biased", "granite", "gpt_oss"])
def test_logits_on_the_matrix_unit_equal_those_of_float32(variant: str, tmp_path: Path) -> None:
    settings = {"is_half": True, "sizes": LARGE}
    on_unit = open_runner(variant, tmp_path, "matrix unit", compiled_threads=2, **settings)  # type: ignore[arg-type]
    plain = open_runner(variant, tmp_path, "torch", **settings)  # type: ignore[arg-type]

    found, expected = (runner.prefill(Row(list(PROMPT)), [130, 21, 49]) for runner in (on_unit, plain))

    assert kinds(on_unit) == {"bfloat16"}
    assert (found - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", ["qwen3", "mistral", "granite", "gpt_oss"])
@pytest.mark.parametrize("way", WAYS)
def test_a_token_gets_the_same_numbers_however_its_prompt_is_cut(variant: str, way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner(variant, tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    one_thread = open_runner(variant, tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=1)

    for one in (runner, one_thread):
        show_states(one)
    expected = runner.prefill(Row(list(PROMPT)), [200])

    assert torch.equal(runner.prefill(Row(list(PROMPT)), [71, 64, 65]), expected)
    assert torch.equal(one_thread.prefill(Row(list(PROMPT)), [100]), expected)


@pytest.mark.parametrize("variant", ["qwen3", "mistral", "granite", "gpt_oss"])
@pytest.mark.parametrize("way", WAYS)
def test_sampled_tokens_get_the_numbers_they_get_where_all_are_sampled(
    variant: str, way: PromptWay, tmp_path: Path
) -> None:
    runner = open_runner(variant, tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2, num_blocks=400)
    show_states(runner)
    # A row that decodes, a prompt that is over, one that is not, drafts, a prompt with drafts behind, one that is not.
    lengths, num_sampled = [1, 20, 18, 5, 40, 3], [1, 1, 0, 5, 3, 0]
    all_rows, some_rows = ([Row(list(PROMPT[start:120])) for start in range(6)] for _ in range(2))
    for rows in (all_rows, some_rows):
        runner.step([(row, 30) for row in rows])

    expected = runner.step(list(zip(all_rows, lengths, strict=True)))
    found = runner.step(list(zip(some_rows, lengths, strict=True)), num_sampled)
    # What the last layer kept of tokens that were not sampled is read by those behind them.
    expected += runner.step([(row, 7) for row in all_rows])
    found += runner.step([(row, 7) for row in some_rows])

    assert [len(states) for states in found[:6]] == num_sampled
    for states, all_states in zip(found, expected, strict=True):
        assert torch.equal(states, all_states[len(all_states) - len(states) :])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_needs_to_be_sampled_of_a_prompt_that_goes_on(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("qwen3", tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    show_states(runner)
    expected = runner.prefill(Row(list(PROMPT)), [200])
    row = Row(list(PROMPT))

    assert not len(runner.step([(row, 150)], [0])[0])
    assert torch.equal(runner.step([(row, 50)], [2])[0], expected[-2:])


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_decode_beside_a_prompt_get_the_numbers_they_get_alone(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("qwen3", tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    show_states(runner)
    alone, beside, drafted, prompt, other = (Row(list(PROMPT[:count])) for count in (60, 60, 60, 140, 97))
    for row in (alone, beside, drafted):
        runner.step([(row, 50)])
    expected = runner.prefill(alone, [1])
    expected_prompt = runner.prefill(Row(PROMPT[:140]), [140])

    found = runner.step([(beside, 1), (prompt, 140), (drafted, 5), (other, 97)])

    assert torch.equal(found[0], expected[:1])
    assert torch.equal(found[2], expected[:5])
    assert torch.equal(found[1], expected_prompt)
    assert torch.equal(found[3], expected_prompt[:97])


@pytest.mark.parametrize("way", WAYS)
def test_many_drafts_get_the_numbers_their_tokens_get_one_by_one(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("qwen3", tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    show_states(runner)
    runner.model.max_verified = 41  # type: ignore[attr-defined]
    one_by_one, drafted = Row(PROMPT[:100]), Row(PROMPT[:100])
    for row in (one_by_one, drafted):
        runner.step([(row, 59)])

    expected = runner.prefill(one_by_one, [1])

    assert torch.equal(runner.step([(drafted, 41), (Row(list(PROMPT)), 90)])[0], expected)


@pytest.mark.parametrize("way", WAYS)
def test_more_rows_than_fit_one_step_are_computed_in_several(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("qwen3", tmp_path, way, num_blocks=200, compiled_threads=2)
    plain = open_runner("qwen3", tmp_path, "torch", num_blocks=200)
    set_limit(runner, 9)

    found, expected = (
        one.step([(Row(PROMPT[start : start + 20]), 4 + start % 3) for start in range(30)]) for one in (runner, plain)
    )

    for logits, known in zip(found, expected, strict=True):
        assert (logits - known).abs().max() < TOLERANCE


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_none_stay_with_the_row_that_made_them(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("mistral", tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    expected = runner.prefill(Row(list(PROMPT)), [99, 101])
    for cache in runner.caches:
        cache.keys.fill_(float("nan"))  # type: ignore[attr-defined]
        cache.values.fill_(float("nan"))  # type: ignore[attr-defined]

    assert torch.equal(runner.prefill(Row(list(PROMPT)), [99, 101]), expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_number_that_is_none_is_seen_in_the_logits(way: PromptWay, tmp_path: Path) -> None:
    runner = open_runner("llama3", tmp_path, way, is_half=True, sizes=LARGE, compiled_threads=2)
    row = Row(list(PROMPT))
    runner.step([(row, 80)])
    runner.caches[0].values[row.blocks[0], :, 0].fill_(float("nan"))  # type: ignore[attr-defined]

    assert runner.step([(row, 70)])[0].isnan().all()


def step_with(lengths: list[int], sampled: list[int] | None = None) -> ForwardContext:
    """Prompts of these lengths, from their beginnings on."""
    num_tokens = sum(lengths)
    return ForwardContext(
        positions=torch.cat([torch.arange(length) for length in lengths]),
        slot_mapping=torch.arange(num_tokens) + 1000,
        query_starts=[0, *np.cumsum(lengths).tolist()],
        context_lens=lengths,
        block_tables=torch.arange(len(lengths)).unsqueeze(1),
        block_size=64,
        sampled=sampled,
    )


def test_a_long_step_is_cut_into_even_parts_that_see_what_came_before_them() -> None:
    context = replace(step_with([1, 20, 3]), context_lens=[30, 40, 3])

    parts = list(cut_evenly(context, 10))

    assert [(first, end) for first, end, _ in parts] == [(0, 8), (8, 16), (16, 24)]
    assert [part.query_starts for *_, part in parts] == [[0, 1, 8], [0, 8], [0, 5, 8]]
    assert [part.context_lens for *_, part in parts] == [[30, 27], [35], [40, 3]]
    assert [part.block_tables[:, 0].tolist() for *_, part in parts] == [[0, 1], [1], [1, 2]]
    for name in ("positions", "slot_mapping"):
        assert torch.equal(torch.cat([getattr(part, name) for *_, part in parts]), getattr(context, name))


def test_a_step_that_is_short_enough_is_one_part() -> None:
    assert [(first, end) for first, end, _ in cut_evenly(step_with([4, 6]), 10)] == [(0, 10)]


def test_steps_are_split_into_prompts_and_steps_of_few_tokens() -> None:
    *parts, prompts = split_rows(step_with([3, 40, 2, 5, 17, 1]), 16, 6)

    assert [part.has_prompts for part in (*parts, prompts)] == [False, False, True]
    assert [part.tokens.tolist() for part in parts] == [[0, 1, 2, 43, 44], [45, 46, 47, 48, 49, 67]]
    assert prompts.tokens.tolist() == [*range(3, 43), *range(50, 67)]
    assert [part.context.query_starts for part in (*parts, prompts)] == [[0, 3, 5], [0, 5, 6], [0, 40, 57]]
    assert [part.context.context_lens for part in parts] == [[3, 2], [5, 1]]
    assert parts[1].context.positions.tolist() == [0, 1, 2, 3, 4, 0]
    assert parts[1].context.slot_mapping.tolist() == [1045, 1046, 1047, 1048, 1049, 1067]
    assert parts[1].context.block_tables.tolist() == [[3], [5]]
    assert all(part.context.sampled is None and torch.equal(part.places, part.tokens) for part in (*parts, prompts))


def test_parts_name_their_sampled_tokens_and_where_those_go() -> None:
    decoding, prompt = split_rows(step_with([1, 20, 2], [0, 5, 20, 21]), 16, 8)

    assert (decoding.context.sampled, decoding.places.tolist()) == ([0, 1], [0, 3])
    assert (prompt.context.sampled, prompt.places.tolist()) == ([4, 19], [1, 2])
