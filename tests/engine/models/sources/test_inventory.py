"""The list of models on this machine, and removal from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.sources import hub as downloads
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.inventory import StoredModel, remove, stored_models
from engine.models.sources.reference import HubReference
from tests.engine.models.sources.hub_server import HubServer


def by_name(prepared: Path) -> dict[str, StoredModel]:
    return {model.name: model for model in stored_models(prepared)}


def test_models_of_every_kind_are_listed_with_their_sizes(hub: HubServer, cache: Path, tmp_path: Path) -> None:
    downloads.download_folder(HubReference(repo_id="acme/tiny", revision="v1"))
    downloads.download_file(HubReference(repo_id="acme/quantized", file="tiny-q4_0.gguf"))
    prepared = tmp_path / "prepared" / "tiny-abc"
    prepared.mkdir(parents=True)
    (prepared / "config.json").write_text("{}")
    (tmp_path / "prepared" / "half-made").mkdir()
    found = by_name(tmp_path / "prepared")
    assert [model.kind for model in found.values()] == ["bundled", "bundled", "package", "hub", "hub", "prepared"]
    assert found["acme/tiny"].num_bytes > 5000
    assert found["acme/tiny"].note == "revisions: v1"
    assert "GGUF files: tiny-q4_0.gguf" in found["acme/quantized"].note
    assert found[str(prepared)].num_bytes == 2
    assert "made-up shop" in found["penstock-small"].note


def test_a_removed_model_is_gone_and_the_others_stay(hub: HubServer, cache: Path, tmp_path: Path) -> None:
    for name in ("acme/tiny", "acme/gated"):
        hub.repositories["acme/gated"] = hub.repositories["acme/tiny"]
        downloads.download_folder(HubReference(repo_id=name))
    folder = tmp_path / "prepared" / "tiny-abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    found = by_name(tmp_path / "prepared")
    remove(found["acme/tiny"])
    remove(found[str(folder)])
    assert not (cache / "models--acme--tiny").exists()
    left = by_name(tmp_path / "prepared")
    assert "acme/gated" in left
    assert found.keys() - left.keys() == {"acme/tiny", str(folder)}


def test_a_bundled_model_stays(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="penstock-small is part of penstock and stays"):
        remove(by_name(tmp_path)["penstock-small"])
