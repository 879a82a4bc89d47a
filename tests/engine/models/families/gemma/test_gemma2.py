"""Gemma 2 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

from tests.engine.models.config.test_config import GEMMA2, read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("gemma2", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("gemma2", shuffle_seed, tmp_path)


def test_gemma2_caps_by_default_and_not_when_set_to_null(tmp_path: Path) -> None:
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": 20.0}

    usual, nulled = read(tmp_path, **GEMMA2).traits, read(tmp_path, **GEMMA2, **caps).traits

    assert (usual.attention_softcap, usual.logit_softcap) == (50.0, 30.0)
    assert (nulled.attention_softcap, nulled.logit_softcap) == (None, 20.0)
