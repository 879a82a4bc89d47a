"""Comparison of a family's tiny random checkpoint with transformers, for the families' own test files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row

TOLERANCE = 1e-4
ONE_OF_EACH_FAMILY = (
    *("llama2", "llama3", "mistral", "qwen2", "qwen3", "olmo2", "olmo3", "phi3"),
    *("smollm3", "granite", "glm4", "exaone4", "gpt_oss", "qwen3_5"),
    *("gemma2", "gemma3", "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe", "qwen3_next"),
)
PROMPT = [(7 * index * index + 3 * index + 1) % 97 for index in range(61)]

IN_CHUNKS = pytest.mark.parametrize("chunk_sizes", [[512], [13, 7, 1, 22]], ids=["whole", "odd_chunks"])
OVER_BLOCKS = pytest.mark.parametrize("shuffle_seed", [None, 3], ids=["consecutive_blocks", "scattered_blocks"])


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


def check_logits(variant: str, chunk_sizes: list[int], folder: Path) -> None:
    """Assert that the logits of a prompt in these chunks are those of transformers."""
    check_logits_of(make_reference(variant), chunk_sizes, folder)


def check_logits_of(reference: PreTrainedModel, chunk_sizes: list[int], folder: Path) -> None:
    """Assert that the logits of a prompt in these chunks are those of this model."""
    runner = PagedRunner(save_checkpoint(reference, folder), shuffle_seed=5)

    logits = runner.prefill(Row(list(PROMPT)), chunk_sizes)

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


def check_greedy_text(variant: str, shuffle_seed: int | None, folder: Path) -> None:
    """Assert that rows of a mixed batch, which join at different steps, have the greedy text of transformers."""
    check_greedy_text_of(make_reference(variant), shuffle_seed, folder)


def check_greedy_text_of(reference: PreTrainedModel, shuffle_seed: int | None, folder: Path) -> None:
    """Assert that rows of a mixed batch have the greedy text of this model."""
    runner = PagedRunner(save_checkpoint(reference, folder), shuffle_seed=shuffle_seed)
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
