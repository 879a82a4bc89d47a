"""SmolLM3 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.config.config_reader import ModelConfigError
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@pytest.mark.parametrize("variant", ["smollm3", "smollm3_windowed"])
@IN_CHUNKS
def test_logits_equal_transformers(variant: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits(variant, chunk_sizes, tmp_path)


@pytest.mark.parametrize("variant", ["smollm3", "smollm3_windowed"])
@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(
    variant: str, shuffle_seed: int | None, tmp_path: Path
) -> None:
    check_greedy_text(variant, shuffle_seed, tmp_path)


def test_every_fourth_layer_does_not_rotate_by_default(tmp_path: Path) -> None:
    config = read(tmp_path, model_type="smollm3", architectures=["SmolLM3ForCausalLM"], num_hidden_layers=9)

    assert config.traits.unrotated_layers == {3, 7}
    assert (config.rope.theta, config.tie_word_embeddings) == (2e6, True)


def test_too_few_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="no_rope_layers: has 2 entries for 4 layers"):
        read(tmp_path, model_type="smollm3", architectures=["SmolLM3ForCausalLM"], no_rope_layers=[1, 0])
