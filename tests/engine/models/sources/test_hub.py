"""Downloads from a hub: only what is needed, once, and a clear error for all that goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from engine.models.sources import hub as downloads
from engine.models.sources.errors import ModelSourceError
from engine.models.sources.reference import HubReference, parse_reference
from tests.engine.models.sources.hub_server import TOKEN, HubServer


def reference(text: str) -> HubReference:
    found = parse_reference(text)
    assert found is not None
    return found


def test_a_model_is_downloaded_once_and_without_the_files_that_are_never_read(hub: HubServer, cache: Path) -> None:
    folder = downloads.download_folder(reference("acme/tiny"))
    assert hub.downloaded == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert (folder / "model.safetensors").read_bytes() == b"w" * 5000
    assert folder.is_relative_to(cache)
    hub.requests.clear()
    assert downloads.download_folder(reference("acme/tiny")) == folder
    assert hub.downloaded == []


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: HubServer, cache: Path) -> None:
    commit = hub.repositories["acme/tiny"].commit
    folder = downloads.download_folder(reference("acme/tiny@v1"))
    assert folder.name == commit
    assert downloads.download_folder(reference(f"acme/tiny@{commit}")) == folder
    with pytest.raises(ModelSourceError, match="acme/tiny has no revision v9"):
        downloads.download_folder(reference("acme/tiny@v9"))


def test_one_gguf_file_of_several_is_downloaded_with_all_its_parts(hub: HubServer, cache: Path) -> None:
    assert downloads.download_file(reference("acme/quantized:tiny-q4_0.gguf")).read_bytes() == b"GGUF"
    assert hub.downloaded == ["tiny-q4_0.gguf"]
    hub.requests.clear()
    first = downloads.download_file(reference("acme/quantized:q4/big-00001-of-00002.gguf"))
    assert hub.downloaded == ["q4/big-00001-of-00002.gguf", "q4/big-00002-of-00002.gguf"]
    assert sorted(file.name for file in first.parent.iterdir()) == [
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
    ]


def test_what_a_repository_lacks_is_named_with_what_it_has(hub: HubServer, cache: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"has no file no\.gguf; its GGUF files: .*tiny-q4_0\.gguf"):
        downloads.download_file(reference("acme/quantized:no.gguf"))
    with pytest.raises(ModelSourceError, match=r"holds GGUF files; name one, such as acme/quantized:\S+\.gguf"):
        downloads.download_folder(reference("acme/quantized"))
    with pytest.raises(ModelSourceError, match=r"has no weights as safetensors.* pytorch_model\.bin"):
        downloads.download_folder(reference("acme/pickle"))
    with pytest.raises(ModelSourceError, match="the hub has no acme/nothing, or it is private"):
        downloads.download_folder(reference("acme/nothing"))


def test_a_gated_and_a_private_model_open_with_the_librarys_token(
    hub: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelSourceError, match=r"acme/gated needs its owner's consent: .* HF_TOKEN"):
        downloads.download_folder(reference("acme/gated"))
    with pytest.raises(ModelSourceError, match=r"the hub has no acme/private, or it is private: .* HF_TOKEN"):
        downloads.download_folder(reference("acme/private"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("acme/gated", "acme/private"):
        assert (downloads.download_folder(reference(name)) / "model.safetensors").is_file()


def test_offline_a_cached_model_serves_and_another_is_an_error_with_what_to_download(
    hub: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = downloads.download_folder(reference("acme/tiny"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert downloads.download_folder(reference("acme/tiny")) == folder
    with pytest.raises(ModelSourceError) as refused:
        downloads.download_folder(reference("acme/other@v2"))
    assert hub.requests == []
    message = str(refused.value)
    assert "HF_HUB_OFFLINE is set" in message
    assert "hf download acme/other --revision v2 --include '*.json'" in message
    assert f"copy the folder models--acme--other of its cache to {cache}" in message


def test_without_a_connection_a_cached_model_serves_and_another_is_an_error(
    hub: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = downloads.download_folder(reference("acme/tiny"))
    nowhere = "http://127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    assert downloads.download_folder(reference("acme/tiny")) == folder
    with pytest.raises(ModelSourceError, match=f"is not in .*, and {nowhere} cannot be reached"):
        downloads.download_file(reference("acme/quantized:tiny-q4_0.gguf"))


def test_a_download_that_broke_off_is_not_taken_for_a_model(
    hub: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.cut_after = 1000
    monkeypatch.setattr("huggingface_hub.file_download.MAX_HTTP_DOWNLOAD_RETRIES", 0, raising=False)
    with pytest.raises(ModelSourceError, match=r"broke off|cannot be reached|refuses"):
        downloads.download_folder(reference("acme/tiny"))
    assert downloads.cached(reference("acme/tiny")) is None
    hub.cut_after = None
    assert (downloads.download_folder(reference("acme/tiny")) / "model.safetensors").stat().st_size == 5000


def test_the_command_downloads_with_nothing_but_the_librarys_own_variables(hub: HubServer, tmp_path: Path) -> None:
    variables = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "engine", "models"]
    pulled = subprocess.run(
        [*command, "pull", "acme/tiny"], env=variables, capture_output=True, text=True, timeout=120, check=True
    )
    assert pulled.stdout.startswith("acme/tiny: ")
    assert str(tmp_path / "home" / "hub") in pulled.stdout
    offline = {**variables, "HF_HUB_OFFLINE": "1"}
    shown = subprocess.run(
        [*command, "info", "acme/tiny"], env=offline, capture_output=True, text=True, timeout=120, check=True
    )
    assert "context        2,048 tokens" in shown.stdout
    missing = subprocess.run([*command, "pull", "acme/gated"], env=offline, capture_output=True, text=True, timeout=120)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1
    assert "HF_HUB_OFFLINE is set" in missing.stderr
