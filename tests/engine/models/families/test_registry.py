"""The choice of a family by a checkpoint's config."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import FAMILIES, read_model_config
from tests.engine.models.checkpoints import VARIANTS


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "expected a JSON object, got list"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
    ],
)
def test_broken_files_are_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ModelConfigError, match=complaint):
        read_model_config(tmp_path)


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"config\.json: cannot be read: No such file"):
        read_model_config(tmp_path)


def test_every_family_has_the_architecture_that_transformers_has_for_its_type() -> None:
    assert {name: family.architecture for name, family in FAMILIES.items()} == {
        name: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name] for name in FAMILIES
    }


def test_every_family_is_compared_with_transformers() -> None:
    assert {str(variant["model_type"]) for variant in VARIANTS.values()} == set(FAMILIES)
