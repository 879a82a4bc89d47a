"""Mistral computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("mistral", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("mistral", shuffle_seed, tmp_path)


def test_mistral_slides_everywhere_or_nowhere(tmp_path: Path) -> None:
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}

    assert read(tmp_path, **mistral, sliding_window=16).traits.sliding_windows == (16,) * 4
    assert read(tmp_path, **mistral, sliding_window=None).traits.sliding_windows == (None,) * 4
