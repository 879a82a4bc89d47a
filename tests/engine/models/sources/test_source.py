"""What a user may call a model, and which folder that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.sources import source
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.packaged import PACKAGED
from engine.models.sources.source import find_model, model_name_of, resolve_model
from tests.engine.models.sources.hub_server import HubServer


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The GGUF files that were prepared, in order; each becomes the same folder."""
    files: list[Path] = []

    def prepare(path: Path) -> Path:
        files.append(path)
        return tmp_path / "prepared"

    monkeypatch.setattr(source, "prepare_folder", prepare)
    return files


def test_a_folder_is_itself_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("org/name") == tmp_path / "org" / "name"
    assert model_name_of("org/name") == "name"


def test_a_gguf_file_is_prepared(tmp_path: Path, prepared: list[Path]) -> None:
    (tmp_path / "a-Q4_0.gguf").write_bytes(b"GGUF")
    assert resolve_model(str(tmp_path / "a-Q4_0.gguf")) == tmp_path / "prepared"
    assert prepared == [tmp_path / "a-Q4_0.gguf"]
    assert model_name_of(str(tmp_path / "a-Q4_0.gguf")) == "a-Q4_0"


def test_bundled_and_packaged_models_have_names(tmp_path: Path, prepared: list[Path]) -> None:
    assert (resolve_model("penstock-small") / "config.json").is_file()
    assert resolve_model("smollm2-135m-instruct") == tmp_path / "prepared"
    assert prepared[0].name == PACKAGED["smollm2-135m-instruct"].file
    assert model_name_of("penstock-small") == "penstock-small"


def test_names_of_the_hub_are_downloaded_and_their_gguf_files_prepared(
    hub: HubServer, cache: Path, prepared: list[Path]
) -> None:
    assert find_model("acme/tiny") is None
    assert resolve_model("acme/tiny").is_relative_to(cache)
    assert find_model("acme/tiny") == resolve_model("acme/tiny")
    resolve_model("acme/quantized:tiny-q4_0.gguf")
    assert prepared[0].read_bytes() == b"GGUF"
    assert model_name_of("acme/tiny@main") == "acme/tiny"
    assert model_name_of("acme/quantized:q4/tiny-q4_0.gguf") == "tiny-q4_0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/nowhere/model", "/nowhere/model: no such folder"),
        ("./no.gguf", "no such file"),
        ("no.gguf", "no such file"),
        ("a/b/c", "no such folder"),
        ("smollm3", r"no such model; expected .* \(one of penstock-large, penstock-small, smollm2-135m-instruct\)"),
        ("org/name:model.bin", "no such model"),
        ("", "no such model"),
    ],
)
def test_what_names_no_model_is_an_error_that_lists_what_does(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelSourceError, match=expected):
        resolve_model(text)


def test_a_file_of_another_kind_and_a_missing_package_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelSourceError, match=r"expected a folder .* or a file \.gguf"):
        resolve_model(str(tmp_path / "model.bin"))
    monkeypatch.setattr("engine.models.sources.packaged.PackagedModel.path", lambda self: None)
    with pytest.raises(ModelSourceError, match="is not installed; penstock models pull smollm2-135m-instruct"):
        resolve_model("smollm2-135m-instruct")
