"""A hub on this machine with a few small models, and the library's settings pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from tests.engine.models.sources.hub_server import HubServer, Repository

CONFIG = b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 2048}'
FOLDER = {
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    "model.safetensors": b"w" * 5000,
    "README.md": b"# a model",
    "pytorch_model.bin": b"never read",
    "onnx/model.onnx": b"never read",
    "original/consolidated.safetensors": b"never read",
    "consolidated.safetensors": b"never read",
}
PARTS = {f"q4/big-0000{n}-of-00002.gguf": b"GGUF%d" % n for n in (1, 2)}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    repositories = {
        "acme/tiny": Repository(FOLDER, revisions=("main", "v1")),
        "acme/quantized": Repository({"tiny-q8_0.gguf": b"GGUF" * 100, "tiny-q4_0.gguf": b"GGUF", **PARTS}),
        "acme/gated": Repository(FOLDER, is_gated=True),
        "acme/private": Repository(FOLDER, is_private=True),
        "acme/pickle": Repository({"config.json": CONFIG, "pytorch_model.bin": b"pickle"}),
    }
    with HubServer(repositories) as server:
        yield server


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's library, which reads its settings when it is imported."""
    folder = tmp_path / "hub"
    folder.mkdir()
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in (
        ("ENDPOINT", hub.url),
        ("HUGGINGFACE_CO_URL_TEMPLATE", template),
        ("HF_HUB_CACHE", str(folder)),
        ("HF_HUB_OFFLINE", False),
        ("HF_TOKEN_PATH", str(tmp_path / "token")),
    ):
        monkeypatch.setattr(constants, name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.utils, "are_progress_bars_disabled", lambda *_: True)
    return folder
