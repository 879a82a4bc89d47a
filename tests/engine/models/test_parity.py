"""The model computes what transformers computes, whatever the chunks, the batch and the block tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from tests.engine.models.checkpoints import VARIANTS, make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

TOLERANCE = 1e-4
PROMPT = [(7 * index * index + 3 * index + 1) % 97 for index in range(61)]

ONE_OF_EACH_FAMILY = (
    *("llama2", "llama3", "mistral", "qwen2", "qwen3", "olmo2", "phi3"),
    *("gemma2", "gemma3", "mixtral", "qwen2_moe", "qwen3_moe"),
)


def reference_logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def reference_greedy(model: PreTrainedModel, tokens: list[int], count: int) -> list[int]:
    with torch.inference_mode():
        output = model.generate(  # type: ignore[operator]
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
        )
    generated: list[int] = output[0, len(tokens) :].tolist()
    return generated


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("chunk_sizes", [[512], [13, 7, 1, 22]], ids=["whole", "odd_chunks"])
def test_logits_equal_transformers(variant: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    reference = make_reference(variant)
    runner = PagedRunner(save_checkpoint(reference, tmp_path), shuffle_seed=5)

    logits = runner.prefill(Row(list(PROMPT)), chunk_sizes)

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", ONE_OF_EACH_FAMILY)
@pytest.mark.parametrize("shuffle_seed", [None, 3], ids=["consecutive_blocks", "scattered_blocks"])
def test_greedy_text_equals_transformers_in_a_mixed_batch(
    variant: str, shuffle_seed: int | None, tmp_path: Path
) -> None:
    reference = make_reference(variant)
    runner = PagedRunner(save_checkpoint(reference, tmp_path), shuffle_seed=shuffle_seed)
    prompts = [PROMPT[:5], PROMPT[10:50], PROMPT[3:30]]
    rows = [Row(list(prompt)) for prompt in prompts]

    # Rows join at different steps and prefill in chunks of 9 beside others that already decode.
    step = 0
    while any(len(row.tokens) - len(prompt) < 64 for row, prompt in zip(rows, prompts, strict=True)):
        active = [row for index, row in enumerate(rows) if step >= 4 * index]
        work = [(row, min(9, len(row.tokens) - row.num_computed)) for row in active]
        for (row, _), logits in zip(work, runner.step(work), strict=True):
            if row.num_computed == len(row.tokens):
                row.tokens.append(int(logits[-1].argmax()))
        step += 1

    for row, prompt in zip(rows, prompts, strict=True):
        assert row.tokens[len(prompt) :][:64] == reference_greedy(reference, prompt, 64)


def test_several_queries_per_row_equal_one_at_a_time(tmp_path: Path) -> None:
    runner = PagedRunner(save_checkpoint(make_reference("qwen3"), tmp_path), shuffle_seed=2)
    one_by_one = runner.prefill(Row(list(PROMPT)), [1])
    rows = [Row(list(PROMPT)), Row(list(PROMPT[:40]))]
    runner.step([(rows[0], 30), (rows[1], 20)])

    verified = runner.step([(rows[0], 5), (rows[1], 1)])

    assert (verified[0] - one_by_one[30:35]).abs().max() < TOLERANCE
    assert (verified[1] - one_by_one[20:21]).abs().max() < TOLERANCE


def test_sharded_checkpoint_equals_whole_one(tmp_path: Path) -> None:
    reference = make_reference("llama2")
    directory = save_checkpoint(reference, tmp_path, max_shard_size="50KB")
    assert len(list(directory.glob("model-*.safetensors"))) > 2

    logits = PagedRunner(directory).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", ["qwen3", "gemma3"])
def test_bfloat16_stays_close_to_transformers_in_bfloat16(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant).bfloat16()
    runner = PagedRunner(save_checkpoint(reference, tmp_path), dtype=torch.bfloat16)

    logits = runner.prefill(Row(list(PROMPT)), [20])

    expected = reference_logits(reference, PROMPT).float()
    assert logits.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(logits, expected).min() > 0.99


def test_longrope_beyond_its_original_length_takes_the_long_factors_from_the_start(tmp_path: Path) -> None:
    reference = make_reference("phi3_longrope")
    runner = PagedRunner(save_checkpoint(reference, tmp_path), max_model_len=512)
    tokens = [(token * 31) % 97 for token in range(200)]

    logits = runner.prefill(Row(tokens), [70])

    assert (logits - reference_logits(reference, tokens)).abs().max() < TOLERANCE


def test_positions_beyond_the_first_rope_table_are_right(tmp_path: Path) -> None:
    reference = make_reference("llama2", max_position_embeddings=8192, num_hidden_layers=1)
    runner = PagedRunner(save_checkpoint(reference, tmp_path), num_blocks=80, block_size=64)
    tokens = [(token * 31) % 97 for token in range(4200)]

    logits = runner.prefill(Row(tokens), [2100])

    assert (logits[-1] - reference_logits(reference, tokens)[-1]).abs().max() < TOLERANCE
