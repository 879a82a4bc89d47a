"""Shapes of the bundled models."""

from __future__ import annotations

import pytest

from engine.training.architecture import SHAPES, Shape, build
from engine.training.tokenizer import VOCAB_SIZE


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_width_suits_kernels_and_heads_share_keys_evenly(shape: Shape) -> None:
    assert shape.hidden_size % 32 == shape.intermediate_size % 32 == 0
    assert shape.num_attention_heads % shape.num_key_value_heads == 0


def test_a_model_is_built_with_tied_embeddings_and_its_end_tokens() -> None:
    model = build(SHAPES["tiny"], eos_token_id=5, pad_token_id=6)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.embed_tokens.weight.shape == (VOCAB_SIZE, 32)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (5, 6)
    assert len(model.model.layers) == 2


def test_the_large_model_is_twice_the_small_one_in_every_width() -> None:
    small, large = SHAPES["small"], SHAPES["large"]
    assert (large.hidden_size, large.intermediate_size) == (2 * small.hidden_size, 2 * small.intermediate_size)
    assert large.num_key_value_heads == 2 * small.num_key_value_heads
