"""Rotary frequencies: published layouts that mean the same, and factors of longer ranges."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.config.rope import LinearScaling, Llama3Scaling, RopeConfig, YarnScaling
from tests.engine.models.checkpoints import LLAMA3_ROPE
from tests.engine.models.config.test_config import LONGROPE, PHI3, read


def test_old_and_new_rope_layouts_mean_the_same(tmp_path: Path) -> None:
    without_theta = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}

    new = read(tmp_path, rope_parameters=LLAMA3_ROPE).rope
    old = read(tmp_path, rope_theta=500.0, rope_scaling=without_theta).rope
    older = read(tmp_path, rope_theta=500.0, rope_scaling={**without_theta, "rope_type": None, "type": "llama3"}).rope

    assert new == old == older
    assert isinstance(new.scaling, Llama3Scaling)
    assert new.theta == 500.0


def test_yarn_sharpens_attention_unless_configured(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

    rope = read(tmp_path, rope_scaling=yarn).rope

    assert isinstance(rope.scaling, YarnScaling)
    assert rope.attention_factor == pytest.approx(1.1386294)
    assert read(tmp_path, rope_scaling={**yarn, "attention_factor": 1.0}).rope.attention_factor == 1.0


def test_yarn_may_weigh_its_sharpening(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5}

    assert read(tmp_path, rope_scaling=yarn).rope.attention_factor == pytest.approx(1.1386294 / 1.0693147)
    assert read(tmp_path, rope_scaling={**yarn, "mscale_all_dim": None}).rope.attention_factor == pytest.approx(
        1.1386294
    )


def test_dynamic_scaling_changes_nothing_within_the_models_own_length(tmp_path: Path) -> None:
    assert read(tmp_path, rope_scaling={"type": "dynamic", "factor": 2.0}).rope == read(tmp_path).rope


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_longrope_is_reported_by_how_far_sequences_reach(kind: str, tmp_path: Path) -> None:
    config = read(tmp_path, **PHI3, rope_scaling={**LONGROPE, "type": kind}, original_max_position_embeddings=64)

    plain = read(tmp_path, **PHI3).rope.inverse_frequencies(8)
    assert torch.equal(config.rope.reaching(64).inverse_frequencies(8), plain)
    assert torch.allclose(config.rope.reaching(65).inverse_frequencies(8), plain / torch.tensor([2.0, 3.0, 4.0, 5.0]))
    assert (config.usual_model_len, config.max_position_embeddings) == (64, 256)
    assert config.rope.attention_factor == pytest.approx((1 + 1 / 3) ** 0.5)


def test_a_part_of_a_head_turns_and_the_rest_stays() -> None:
    rotations = RopeConfig(theta=100.0, rotated_share=0.5).rotations(head_dim=8, num_positions=5)
    assert rotations.shape == (5, 4)
    assert torch.equal(rotations[:, 2:], torch.ones(5, 2, dtype=torch.complex64))
    assert rotations[3, 0].angle() == pytest.approx(3.0)
    assert rotations[3, 1].angle() == pytest.approx(3.0 / 10.0)


def test_linear_scaling_turns_as_at_a_nearer_position_and_the_factor_lengthens() -> None:
    plain, scaled = RopeConfig(theta=100.0), RopeConfig(theta=100.0, scaling=LinearScaling(factor=2.0))
    assert torch.allclose(scaled.rotations(8, 9)[8], plain.rotations(8, 9)[4])
    longer = RopeConfig(theta=100.0, attention_factor=1.5).rotations(8, 9)
    assert torch.allclose(longer.abs(), torch.full((9, 4), 1.5))
