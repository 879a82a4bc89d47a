"""The model computes what transformers computes, whatever the chunks, the batch and the block tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import PROMPT, TOLERANCE, reference_logits
from tests.engine.models.paged import PagedRunner, Row


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
