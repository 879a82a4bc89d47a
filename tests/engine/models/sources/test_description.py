"""What is known of a model before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.models.sources.description import bytes_of, describe_model
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.packaged import bundled_folder


def test_a_bundled_model_is_described_by_its_files() -> None:
    folder = bundled_folder("penstock-small")
    assert folder is not None
    found = describe_model("mine", folder)
    assert (found.name, found.architecture, found.context_tokens) == ("mine", "Qwen3ForCausalLM", 4096)
    assert found.has_chat_template
    assert found.num_bytes == bytes_of(folder) > 2_000_000


def test_the_text_part_of_a_multimodal_model_has_the_context(tmp_path: Path) -> None:
    config = {"model_type": "gemma3", "text_config": {"max_position_embeddings": 131072}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = describe_model("m", tmp_path)
    assert (found.architecture, found.context_tokens, found.has_chat_template) == ("gemma3", 131072, False)


@pytest.mark.parametrize("content", [None, "", "[]", "{", "[" * 100_000])
def test_a_folder_without_a_readable_config_is_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelSourceError, match=r"config\.json"):
        describe_model("m", tmp_path)
