"""Folders of models: what is missing or of another kind is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedding.model_files import EncoderUnavailable, installed_model, read_model


def test_a_folder_without_a_model_is_stated(tmp_path: Path) -> None:
    with pytest.raises(EncoderUnavailable, match=r"config\.json"):
        read_model(tmp_path, "name")


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "mpnet", "hidden_act": "gelu"}')
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    with pytest.raises(EncoderUnavailable, match="not a BERT or RoBERTa"):
        read_model(tmp_path, "name")


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.embedding.model_files.find_spec", lambda name: None)
    with pytest.raises(EncoderUnavailable, match=r"pip install 'penstock\[embeddings\]'"):
        installed_model()
