"""Which layers of Qwen's sparse models have experts, and how many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.models.config.config_reader import ModelConfigError
from tests.engine.models.config.test_config import QWEN_MOE, read


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, {0, 1, 2, 3}),
        ({"decoder_sparse_step": 2}, {1, 3}),
        ({"mlp_only_layers": [0, 3]}, {1, 2}),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, {1}),
        ({"num_experts": "absent", "num_local_experts": 8}, {0, 1, 2, 3}),
    ],
)
def test_which_layers_have_experts(changes: dict[str, Any], layers: set[int], tmp_path: Path) -> None:
    experts = read(tmp_path, **{**QWEN_MOE, **changes}).traits.experts

    assert experts is not None
    assert (experts.num_experts, experts.layers) == (8, frozenset(layers))


def test_shares_are_normalized_only_when_the_config_reports_it(tmp_path: Path) -> None:
    for value, is_normalized in ((True, True), (False, False), ("absent", False)):
        experts = read(tmp_path, **QWEN_MOE, norm_topk_prob=value).traits.experts
        assert experts is not None
        assert (experts.is_normalized, experts.num_chosen, experts.size) == (is_normalized, 2, 16)


def test_the_older_family_has_an_expert_that_every_token_reads(tmp_path: Path) -> None:
    older = {**QWEN_MOE, "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"]}
    experts = read(tmp_path, **older, shared_expert_intermediate_size=24).traits.experts
    assert experts is not None
    assert experts.shared_size == 24
    newer = read(tmp_path, **QWEN_MOE).traits.experts
    assert newer is not None
    assert newer.shared_size is None
    with pytest.raises(ModelConfigError, match="shared_expert_intermediate_size: is required"):
        read(tmp_path, **older)
