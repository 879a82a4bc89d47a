"""EXAONE 4 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.config.config_reader import ModelConfigError
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@pytest.mark.parametrize("variant", ["exaone4", "exaone4_full"])
@IN_CHUNKS
def test_logits_equal_transformers(variant: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits(variant, chunk_sizes, tmp_path)


@pytest.mark.parametrize("variant", ["exaone4", "exaone4_full"])
@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(
    variant: str, shuffle_seed: int | None, tmp_path: Path
) -> None:
    check_greedy_text(variant, shuffle_seed, tmp_path)


def test_a_window_without_the_layers_that_have_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="layer_types: is required beside sliding_window"):
        read(tmp_path, model_type="exaone4", architectures=["Exaone4ForCausalLM"], sliding_window=64)
